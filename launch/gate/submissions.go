package gate

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/peer"

	"github.com/isthmus-grid/isthmus/launch/gate/gatepb"
	"github.com/isthmus-grid/isthmus/overlay"
)

// submissions is which jobs programs of this node converse about, and with whom. Safe
// for concurrent use.
type submissions struct {
	here overlay.NodeID

	mu  sync.Mutex
	all map[*notedStream]bool
}

func newSubmissions(here overlay.NodeID) *submissions {
	return &submissions{here: here, all: map[*notedStream]bool{}}
}

// notedStream is a conversation of a program of this node, noted once its first message
// said what it is about.
type notedStream struct {
	Stream
	list *submissions
	once sync.Once

	job   string
	node  string
	user  doorInfo
	since time.Time
}

// Recv notes what the first message says.
func (n *notedStream) Recv() (*gatepb.ToNode, error) {
	m, err := n.Stream.Recv()
	n.once.Do(func() {
		job := cmp.Or(m.GetAsk().GetJob(), m.GetAttach().GetJob())
		p, ok := peer.FromContext(n.Context())
		node, where := target(n.Context(), n.list.here)
		if err != nil || job == "" || !ok || where != nil {
			return
		}
		n.user, _ = p.AuthInfo.(doorInfo)
		n.job, n.node, n.since = job, node.String(), time.Now()
		n.list.mu.Lock()
		defer n.list.mu.Unlock()
		n.list.all[n] = true
	})
	return m, err
}

func (n *notedStream) end() {
	n.once.Do(func() {}) // nothing is noted any more
	n.list.mu.Lock()
	defer n.list.mu.Unlock()
	delete(n.list.all, n)
}

// list returns the jobs, the oldest first.
func (s *submissions) list() []*gatepb.Submission {
	s.mu.Lock()
	defer s.mu.Unlock()
	type by struct {
		job string
		pid int32
	}
	jobs := map[by]*gatepb.Submission{}
	for n := range s.all {
		age := uint64(time.Since(n.since).Milliseconds())
		key := by{n.job, n.user.PID}
		j := jobs[key]
		if j == nil {
			j = &gatepb.Submission{Job: n.job, Uid: n.user.UID, User: n.user.user, Pid: uint32(n.user.PID)}
			jobs[key] = j
		}
		j.Nodes, j.AgeMs = append(j.Nodes, n.node), max(j.AgeMs, age)
	}
	var all []*gatepb.Submission
	for _, j := range jobs {
		slices.Sort(j.Nodes)
		j.Nodes = slices.Compact(j.Nodes)
		all = append(all, j)
	}
	slices.SortFunc(all, func(a, b *gatepb.Submission) int {
		return cmp.Or(cmp.Compare(b.AgeMs, a.AgeMs), cmp.Compare(a.Job, b.Job), cmp.Compare(a.Pid, b.Pid))
	})
	return all
}
