// Package allocate decides which processes of a job run on which hosts: from what
// hosts offer, how far they are, and what the job asks for, it makes a Plan.
//
// The steps are those of P2P-MPI's co-allocation (Genaud and Rattanapoka): hosts in
// order of latency, a capacity for each, a strategy that says how many processes each
// host gets, and ranks numbered along the hosts so that no two copies of a rank share
// one. Spread and Concentrate are its two strategies; Auto places by what was measured
// between the hosts and by who talks to whom in the job.
//
// The package knows no socket, no clock and no reservation (package reserve has those):
// a Plan is a function of its arguments. It keeps no state, and everything here is safe
// for concurrent use as long as the arguments are not changed meanwhile.
package allocate

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// MaxProcesses is the most processes, copies counted, that a job may have.
const MaxProcesses = 1 << 20

// UnknownLatency stands for a latency that nobody measured; such hosts come last.
const UnknownLatency = time.Duration(math.MaxInt64)

// Host is what one host offers to the job.
type Host struct {
	Node      overlay.NodeID
	Latency   time.Duration // round trip from the submitter
	Processes int           // P: processes of one job at a time
	Jobs      int           // jobs that the host takes besides those it has; 0: none
	Memory    int64         // bytes for the job's processes together; 0: not limited
	CPU       int           // thousandths of a core for them together; 0: not limited
}

// Job is what is to be placed.
type Job struct {
	Ranks  int   // n, at least 1
	Copies int   // r, the copies of each rank; at least 1, and 1 means no replication
	Memory int64 // bytes that each process needs; 0: any
	CPU    int   // thousandths of a core that each process needs; 0: any

	// Home, when set, is the host on which rank 0 runs, once, whatever Copies says:
	// the submitter's own. It must be among the hosts.
	Home overlay.NodeID

	// Pattern and Message, in bytes, say what the job sends. Only Auto and
	// Plan.Cost ask.
	Pattern Pattern
	Message int
}

// pinned reports whether rank 0 stays at home.
func (j Job) pinned() bool { return j.Home != overlay.NodeID{} }

// Processes returns how many processes the job has, copies counted.
func (j Job) Processes() int {
	if j.pinned() {
		return 1 + (j.Ranks-1)*j.Copies
	}
	return j.Ranks * j.Copies
}

// Check says what is wrong with the job, or returns nil.
func (j Job) Check() error {
	switch {
	case j.Ranks < 1:
		return fmt.Errorf("a job of %d ranks: want at least 1", j.Ranks)
	case j.Copies < 1:
		return fmt.Errorf("%d copies of each rank: want at least 1; 1 means no replication", j.Copies)
	case j.Ranks > MaxProcesses || j.Copies > MaxProcesses || j.Ranks*j.Copies > MaxProcesses:
		return fmt.Errorf("%d ranks in %d copies each: at most %d processes are allowed", j.Ranks, j.Copies, MaxProcesses)
	case j.Memory < 0 || j.CPU < 0 || j.Message < 0:
		return fmt.Errorf("a job that needs %d bytes and %d/1000 of a core per process and sends messages of %d bytes: none may be negative", j.Memory, j.CPU, j.Message)
	}
	return j.Pattern.check()
}

// Strategy says how many processes each host gets. Implementations keep no state.
type Strategy interface {
	// Name returns the name that users type.
	Name() string

	// Place shares d.Processes out. A share is for a host of d and at most its
	// capacity, no host has two, and their order is that in which ranks are
	// numbered. The capacities of d suffice.
	Place(d Demand) ([]Share, error)

	// Settled reports whether no host behind the last of d can change the
	// placement, so that nobody needs to wait for their answers.
	Settled(d Demand) bool
}

// Demand is what a Strategy has to place and where.
type Demand struct {
	Job       Job
	Processes int    // how many to place; without rank 0 when the job has a Home
	Home      Host   // runs rank 0, when the job has a Home
	Hosts     []Host // those that can take one at least, nearest first
	Capacity  []int  // of each host, at least 1, and no more than may share a host
}

// Share is a number of processes on one host.
type Share struct {
	Host      int // index in Demand.Hosts
	Processes int
}

// Strategies lists the names that ByName knows, the default first.
var Strategies = []string{"spread", "concentrate", "auto"}

// ByName returns the strategy of that name. network is what auto places by; nil when
// nothing was measured.
func ByName(name string, network Network) (Strategy, error) {
	switch name {
	case "spread":
		return Spread{}, nil
	case "concentrate":
		return Concentrate{}, nil
	case "auto":
		return Auto{Network: network}, nil
	}
	return nil, fmt.Errorf("no strategy %.40q: want one of %q", name, Strategies)
}

// Allocate places job on hosts, which are in the order in which they are to be used:
// nearest first, as Order has them, or a table of latencies whose order does not flap.
// The error is a *Shortage when the hosts cannot take the job.
func Allocate(job Job, hosts []Host, strategy Strategy) (*Plan, error) {
	if err := job.Check(); err != nil {
		return nil, err
	}
	if err := check(job, hosts); err != nil {
		return nil, err
	}
	if lack := shortage(job, hosts); lack != nil {
		return nil, lack
	}
	d, at := demand(job, hosts)
	shares, err := strategy.Place(d)
	if err != nil {
		return nil, fmt.Errorf("strategy %s: %w", strategy.Name(), err)
	}
	if err := d.holds(shares); err != nil {
		return nil, fmt.Errorf("strategy %s broke its promise: %w", strategy.Name(), err)
	}
	return newPlan(job, strategy.Name(), hosts, at, shares), nil
}

// Settled reports whether the job can be placed on these hosts and no host further away
// would change where.
func Settled(job Job, hosts []Host, strategy Strategy) bool {
	if job.Check() != nil || check(job, hosts) != nil || !fits(job, hosts) {
		return false
	}
	d, _ := demand(job, hosts)
	return strategy.Settled(d)
}

// Order returns hosts by ascending latency in a slice of its own; hosts as far as each
// other stay in the order given.
func Order(hosts []Host) []Host {
	hosts = slices.Clone(hosts)
	slices.SortStableFunc(hosts, func(a, b Host) int { return cmp.Compare(a.Latency, b.Latency) })
	return hosts
}

// errTwice and errNoHome are the ways in which a list of hosts is wrong.
var (
	errTwice  = errors.New("is in the list of hosts twice")
	errNoHome = errors.New("is to run rank 0 but is not among the hosts")
)

func check(job Job, hosts []Host) error {
	seen := make(map[overlay.NodeID]bool, len(hosts))
	for _, h := range hosts {
		if seen[h.Node] {
			return fmt.Errorf("%s %w", h.Node, errTwice)
		}
		seen[h.Node] = true
	}
	if job.pinned() && !seen[job.Home] {
		return fmt.Errorf("%s %w", job.Home, errNoHome)
	}
	return nil
}

// demand returns what is left to a strategy, and for each of its hosts the index in
// hosts.
func demand(job Job, hosts []Host) (d Demand, at []int) {
	d = Demand{Job: job, Processes: job.Processes()}
	if job.pinned() {
		d.Processes--
	}
	for i, h := range hosts {
		if job.pinned() && h.Node == job.Home {
			d.Home = h
		}
		if c := shared(job, h); c > 0 {
			d.Hosts = append(d.Hosts, h)
			d.Capacity = append(d.Capacity, c)
			at = append(at, i)
		}
	}
	return d, at
}

// shared is how many processes a strategy may put on h: those that are not rank 0 at
// home, and no more than there are ranks, because with more two copies of one would
// share the host.
func shared(job Job, h Host) int {
	if !job.pinned() {
		return capacity(job, h)
	}
	c := capacity(job, h)
	if h.Node == job.Home {
		c--
	}
	return min(c, job.Ranks-1)
}

// holds says how shares are not what Strategy.Place promises, or returns nil.
func (d Demand) holds(shares []Share) error {
	placed, used := 0, map[int]bool{}
	for _, s := range shares {
		switch {
		case s.Host < 0 || s.Host >= len(d.Hosts):
			return fmt.Errorf("a share for host %d of %d", s.Host, len(d.Hosts))
		case used[s.Host]:
			return fmt.Errorf("two shares for %s", d.Hosts[s.Host].Node)
		case s.Processes < 1 || s.Processes > d.Capacity[s.Host]:
			return fmt.Errorf("%d processes for %s, which takes 1 to %d", s.Processes, d.Hosts[s.Host].Node, d.Capacity[s.Host])
		}
		used[s.Host] = true
		placed += s.Processes
	}
	if placed != d.Processes {
		return fmt.Errorf("%d processes placed of %d", placed, d.Processes)
	}
	return nil
}
