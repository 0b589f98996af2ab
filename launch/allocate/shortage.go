package allocate

import (
	"fmt"
	"slices"
	"sort"
	"strings"
)

// Limit names what prevents a host from taking more processes.
type Limit string

// The limits of a host.
const (
	LimitHosts     Limit = "hosts"     // there are too few, or none
	LimitJobs      Limit = "jobs"      // J: they already run the maximum number of jobs
	LimitProcesses Limit = "processes" // P: processes of one job
	LimitMemory    Limit = "memory"
	LimitCPU       Limit = "cpu"
	LimitCopies    Limit = "copies" // copies of a rank must be on different hosts
	LimitTasks     Limit = "tasks"  // one task of a graph for each host
)

// hostLimits are the limits on a single host.
var hostLimits = []Limit{LimitJobs, LimitProcesses, LimitMemory, LimitCPU, LimitCopies, LimitTasks}

// bound returns how many processes of the job the host could take if only this limit applied.
func bound(job Job, h Host, l Limit) int {
	switch {
	case l == LimitJobs && h.Jobs < 1:
		return 0
	case l == LimitProcesses:
		return max(0, h.Processes)
	case l == LimitMemory && job.Memory > 0 && h.Memory > 0:
		return int(min(h.Memory/job.Memory, MaxProcesses))
	case l == LimitCPU && job.CPU > 0 && h.CPU > 0:
		return h.CPU / job.CPU
	case l == LimitCopies:
		return job.Ranks
	case l == LimitTasks && job.Graph != nil:
		return 1
	}
	return MaxProcesses
}

// capacity returns c, how many processes of the job the host can take.
func capacity(job Job, h Host) int { return capacityWithout(job, h, "") }

// capacityWithout returns the capacity without one limit.
func capacityWithout(job Job, h Host, lifted Limit) int {
	c := MaxProcesses
	for _, l := range hostLimits {
		if l != lifted {
			c = min(c, bound(job, h, l))
		}
	}
	return c
}

// fits reports whether the hosts can take the job: the paper's condition (b). Its condition (a),
// that there are at least as many hosts as copies, follows, since no capacity exceeds the number of
// ranks.
func fits(job Job, hosts []Host) bool { return fitsWithout(job, hosts, "") }

func fitsWithout(job Job, hosts []Host, lifted Limit) bool {
	need, have := job.Processes(), 0
	for _, h := range hosts {
		c := capacityWithout(job, h, lifted)
		if job.pinned() {
			if h.Node == job.Home {
				if c == 0 {
					return false // rank 0 cannot run elsewhere
				}
				need, c = need-1, c-1
			}
			if lifted != LimitCopies {
				c = min(c, job.Ranks-1)
			}
		}
		have += c
	}
	return have >= need
}

// Shortage is the error of a job that does not fit the hosts; use errors.As.
type Shortage struct {
	Job   Job
	Hosts int // number of hosts
	Have  int // processes that they can take together
	Need  int // processes of the job

	// Limits are the obstacles: each limit whose removal on all hosts would alone let the job fit.
	// If there is none, all limits that are reached on some host.
	Limits []Limit
	Alone  bool // whether removing any one of Limits suffices

	// Nearest are the jobs nearest to this one that would fit, each with one change; none when not
	// even one process fits.
	Nearest []Offer
}

// Offer is one change that makes a job fit.
type Offer struct {
	Job  Job
	Text string // for people: "-n 120", "at most 512 MiB per process"
}

// Error names the obstacles and what would fit.
func (s *Shortage) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d processes (%d ranks, %d copies each) do not fit: %d hosts take %d", s.Need, s.Job.Ranks, s.Job.Copies, s.Hosts, s.Have)
	if len(s.Limits) > 0 {
		names := make([]string, len(s.Limits))
		for i, l := range s.Limits {
			names[i] = string(l)
		}
		how := " together"
		if s.Alone {
			how = ""
		}
		fmt.Fprintf(&b, "; in the way%s: %s", how, strings.Join(names, ", "))
	}
	for i, o := range s.Nearest {
		sep := "; would fit: "
		if i > 0 {
			sep = ", or "
		}
		b.WriteString(sep + o.Text)
	}
	return b.String()
}

// shortage returns why the job does not fit, or nil.
func shortage(job Job, hosts []Host) *Shortage {
	if fits(job, hosts) {
		return nil
	}
	s := &Shortage{Job: job, Hosts: len(hosts), Need: job.Processes()}
	for _, h := range hosts {
		s.Have += capacity(job, h)
	}
	s.Limits, s.Alone = limits(job, hosts)
	s.Nearest = nearest(job, hosts)
	return s
}

// limits finds the obstacles.
func limits(job Job, hosts []Host) (found []Limit, alone bool) {
	for _, l := range hostLimits {
		if fitsWithout(job, hosts, l) {
			found = append(found, l)
		}
	}
	if len(found) > 0 {
		return found, true
	}
	for _, l := range hostLimits {
		if slices.ContainsFunc(hosts, func(h Host) bool { return bound(job, h, l) <= capacity(job, h) }) {
			found = append(found, l)
		}
	}
	if len(found) == 0 {
		found = []Limit{LimitHosts}
	}
	return found, false
}

// nearest finds, for each parameter of the job, the closest value with which it fits, by binary
// search: a job that fits still does with fewer ranks, fewer copies, less memory or less CPU. For
// ranks that holds because the sum of min(P, n) - r n is concave in n and 0 at 0.
func nearest(job Job, hosts []Host) []Offer {
	var offers []Offer
	try := func(now int64, change func(v int64) Job, text func(v int64) string) {
		// The largest value in [1, now) that fits.
		v := int64(sort.Search(int(now-1), func(i int) bool { return !fits(change(int64(i)+1), hosts) }))
		if now > 1 && v > 0 {
			offers = append(offers, Offer{change(v), text(v)})
		}
	}
	if job.Graph == nil { // the tasks of a graph are as many as they are
		try(int64(job.Ranks), func(v int64) Job { j := job; j.Ranks = int(v); return j },
			func(v int64) string { return fmt.Sprintf("%d ranks", v) })
	}
	try(int64(job.Copies), func(v int64) Job { j := job; j.Copies = int(v); return j },
		func(v int64) string { return plural(v, "copy", "copies") + " of each rank" })
	try(job.Memory, func(v int64) Job { j := job; j.Memory = v; return j },
		func(v int64) string { return fmt.Sprintf("%d bytes per process", v) })
	try(int64(job.CPU), func(v int64) Job { j := job; j.CPU = int(v); return j },
		func(v int64) string { return fmt.Sprintf("%d/1000 of a core per process", v) })
	return offers
}

func plural(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
