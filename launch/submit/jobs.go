package submit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-grid/isthmus/launch/allocate"
	"github.com/isthmus-grid/isthmus/launch/nodeservice"
	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
	"github.com/isthmus-grid/isthmus/overlay"
)

// askTime bounds the calls to one node about jobs.
const askTime = 10 * time.Second

// askAllTime bounds those to all nodes.
const askAllTime = 30 * time.Second

// slowTime is after how long Grid.Slow is called.
const slowTime = 2 * time.Second

// RunningJob is a job as reported by the node services of its hosts.
type RunningJob struct {
	ID        overlay.JobID
	State     string // held, started, running or ending; that of most hosts
	By        string // USER@SITE/NODE that submitted it
	Processes int    // on all hosts
	Hosts     []overlay.NodeID
	Age       time.Duration // since the first host was booked
	Argv      []string      // empty: the caller may not see it

	Ranks    int     // of the whole job; 0: it has not started
	Replicas int     // of each rank, at least 1 once it has started
	Live     [][]int // for each rank the replicas that run, on hosts that answer; nil with one replica
}

// addLive adds what a host says of the job's processes there.
func (j *RunningJob) addLive(there *nodepb.JobHere) {
	if there.Ranks == 0 || there.Ranks > allocate.MaxProcesses || j.Ranks > 0 && int(there.Ranks) != j.Ranks {
		return // it has not started there, or the host contradicts the others
	}
	j.Ranks, j.Replicas = int(there.Ranks), int(max(there.Replicas, 1))
	if j.Replicas == 1 {
		return
	}
	if j.Live == nil {
		j.Live = make([][]int, j.Ranks)
	}
	for _, p := range there.Places {
		if int(p.Rank) < j.Ranks {
			j.Live[p.Rank] = append(j.Live[p.Rank], int(p.Copy))
			slices.Sort(j.Live[p.Rank])
		}
	}
}

// Jobs returns the jobs of all hosts, the oldest first, and the errors of the hosts that did not
// answer.
func (g *Grid) Jobs(ctx context.Context) ([]RunningJob, map[overlay.NodeID]error, error) {
	hosts, stale, err := g.Hosts(ctx)
	if err != nil {
		return nil, nil, err
	}
	if stale != "" && g.Stale != nil {
		g.Stale(stale)
	}
	answers := make([]*nodepb.JobsResponse, len(hosts))
	silent := g.each(ctx, hosts, func(ctx context.Context, i int) (err error) {
		answers[i], err = g.Client().Jobs(ctx, &nodepb.JobsRequest{})
		return err
	})
	found := map[overlay.JobID]*RunningJob{}
	states := map[overlay.JobID]map[string]int{}
	for i, h := range hosts {
		for _, there := range answers[i].GetJobs() {
			id := overlay.JobID(there.Job)
			j := found[id]
			if j == nil {
				j = &RunningJob{ID: id, By: there.User + "@" + there.By}
				found[id], states[id] = j, map[string]int{}
			}
			states[id][there.State]++
			j.Processes += int(there.Processes)
			j.Hosts = append(j.Hosts, h.Node)
			j.Age = max(j.Age, time.Duration(there.AgeMs)*time.Millisecond)
			j.addLive(there)
			if len(j.Argv) == 0 {
				j.Argv = nodepb.Words(there.Argv)
			}
		}
	}
	var all []RunningJob
	for id, j := range found {
		for state, n := range states[id] {
			if most := states[id][j.State]; n > most || n == most && state < j.State {
				j.State = state
			}
		}
		all = append(all, *j)
	}
	slices.SortFunc(all, func(a, b RunningJob) int { return cmp.Or(-cmp.Compare(a.Age, b.Age), cmp.Compare(a.ID, b.ID)) })
	return all, silent, nil
}

// Kill ends a job on all hosts, and returns on how many it ended. The name is its id, or a prefix
// that only this job's id has.
func (g *Grid) Kill(ctx context.Context, name string) (id overlay.JobID, ended int, err error) {
	jobs, silent, err := g.Jobs(ctx)
	if err != nil {
		return "", 0, err
	}
	var meant []RunningJob
	for _, j := range jobs {
		if string(j.ID) == name {
			meant = []RunningJob{j}
			break
		}
		if strings.HasPrefix(string(j.ID), name) {
			meant = append(meant, j)
		}
	}
	switch {
	case len(meant) == 0 && len(silent) > 0:
		return "", 0, fmt.Errorf("job %s: not on any host that answers, and %d do not", name, len(silent))
	case len(meant) == 0:
		return "", 0, fmt.Errorf("job %s: not found on any host", name)
	case len(meant) > 1:
		return "", 0, fmt.Errorf("job %s: %d jobs begin so", name, len(meant))
	}
	j := meant[0]
	hosts := make([]Host, len(j.Hosts))
	for i, n := range j.Hosts {
		hosts[i].Node = n
	}
	counts := make([]int, len(hosts))
	failed := g.each(ctx, hosts, func(ctx context.Context, i int) error {
		r, err := g.Client().Kill(ctx, &nodepb.KillRequest{Job: string(j.ID)})
		counts[i] = int(r.GetReservations())
		if status.Code(err) == codes.NotFound { // it ended by itself
			return nil
		}
		return err
	})
	var all []error
	for i, h := range hosts {
		if counts[i] > 0 {
			ended++
		}
		if failed[h.Node] != nil {
			all = append(all, fmt.Errorf("%s: %w", h.Node, failed[h.Node]))
		}
	}
	return j.ID, ended, errors.Join(all...)
}

// each calls f for every host, several at a time, and returns the errors. Those that this node's helper has
// asked in vain are not asked again.
func (g *Grid) each(ctx context.Context, hosts []Host, f func(ctx context.Context, i int) error) map[overlay.NodeID]error {
	ctx, cancel := context.WithTimeout(ctx, askAllTime)
	defer cancel()
	var (
		mu      sync.Mutex
		waiting = map[overlay.NodeID]bool{} // guarded by mu
	)
	slow := time.AfterFunc(slowTime, func() {
		mu.Lock()
		nodes := slices.SortedFunc(maps.Keys(waiting), func(a, b overlay.NodeID) int { return cmp.Compare(a.Key(), b.Key()) })
		mu.Unlock()
		if g.Slow != nil && len(nodes) > 0 {
			g.Slow(nodes)
		}
	})
	defer slow.Stop()
	errs := askHosts(ctx, hosts, func(h Host) bool { return h.State != stateAway && !h.silent }, func(ctx context.Context, i int) error {
		node := hosts[i].Node
		ctx, cancel := context.WithTimeout(nodeservice.At(ctx, node), askTime)
		defer cancel()
		mu.Lock()
		waiting[node] = true
		mu.Unlock()
		err := f(ctx, i)
		mu.Lock()
		delete(waiting, node)
		mu.Unlock()
		return plain(err)
	}, func(int) {})
	failed := map[overlay.NodeID]error{}
	for i, h := range hosts {
		if h.silent && h.State != stateAway {
			errs[i] = errUnanswered
		}
		if errs[i] != nil {
			failed[h.Node] = errs[i]
		}
	}
	return failed
}
