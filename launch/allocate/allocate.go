// Package allocate decides which processes of a job run on which hosts: it makes a Plan from the
// hosts' offers, their distances, and the job's requirements.
//
// The steps are those of P2P-MPI's co-allocation (Genaud and Rattanapoka): hosts in order of
// latency, a capacity for each, a strategy that decides how many processes each host gets, and
// ranks numbered along the hosts so that no two copies of a rank share one. Spread and Concentrate
// are its two strategies; Auto places by measurements between the hosts and by the job's
// communication pattern. Mapped places jobs whose ranks communicate along a graph, by package
// mapping.
//
// The package knows no socket, no clock and no reservation (package reserve has those): a Plan is a
// function of its arguments. It keeps no state, and everything here is safe for concurrent use as
// long as the arguments are not modified meanwhile.
package allocate

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/isthmus-grid/isthmus/launch/mapping"
	"github.com/isthmus-grid/isthmus/overlay"
)

// MaxProcesses bounds the processes of a job, including copies.
const MaxProcesses = 1 << 20

// UnknownLatency stands for a latency that was not measured; such hosts come last.
const UnknownLatency = time.Duration(math.MaxInt64)

// Host is the offer of one host to the job.
type Host struct {
	Node      overlay.NodeID
	Latency   time.Duration // round trip from the submitter
	Processes int           // P: processes of one job at a time
	Jobs      int           // further jobs that the host accepts; 0: none
	Memory    int64         // bytes for the job's processes together; 0: not limited
	CPU       int           // thousandths of a core for them together; 0: not limited

	// Power is how fast a process that uses all cores runs: the costs of a graph are millions of multiplications and
	// additions, and this is how many of these millions it does in a second. Only graphs use it; 0: unknown.
	Power float64
}

// Job is the job to place.
type Job struct {
	Ranks  int   // n, at least 1
	Copies int   // r, the copies of each rank; at least 1, and 1 means no replication
	Memory int64 // bytes that each process needs; 0: any
	CPU    int   // thousandths of a core that each process needs; 0: any

	// Home, if set, is the host on which rank 0 runs, once, whatever Copies is: the submitter's
	// own. It must be among the hosts.
	Home overlay.NodeID

	// Pattern and Message, in bytes, describe the job's communication. Only Auto and Plan.Cost use
	// them.
	Pattern Pattern
	Message int

	// Graph, if set, is who talks to whom, in place of Pattern: a task for each rank. Then no host runs
	// more than one rank, there is one copy, and no Home.
	Graph *mapping.Graph
}

// pinned reports whether rank 0 must run at Home.
func (j Job) pinned() bool { return j.Home != overlay.NodeID{} }

// Processes returns the number of processes of the job, including copies.
func (j Job) Processes() int {
	if j.pinned() {
		return 1 + (j.Ranks-1)*j.Copies
	}
	return j.Ranks * j.Copies
}

// Check returns an error if the job is invalid.
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
	if err := j.checkGraph(); err != nil {
		return err
	}
	return j.Pattern.check()
}

func (j Job) checkGraph() error {
	switch {
	case j.Graph == nil:
		return nil
	case j.Graph.Tasks() != j.Ranks:
		return fmt.Errorf("a graph of %d tasks for a job of %d ranks: want a task for each", j.Graph.Tasks(), j.Ranks)
	case j.Copies > 1 || j.pinned():
		return errors.New("a job with a graph has one copy of each rank, and rank 0 is not pinned to a host")
	}
	return nil
}

// Strategy decides how many processes each host gets. Implementations keep no state.
type Strategy interface {
	// Name returns the name by which users select it.
	Name() string

	// Place distributes d.Processes. A share is for a host of d and at most its capacity, no host
	// has two, and their order is that in which ranks are numbered. The capacities of d suffice.
	Place(d Demand) ([]Share, error)

	// Settled reports whether no host after the last of d can change the placement, so that the
	// caller need not wait for further answers.
	Settled(d Demand) bool
}

// Demand is the input of a Strategy.
type Demand struct {
	Job       Job
	Processes int    // to place; without rank 0 when the job has a Home
	Home      Host   // runs rank 0, when the job has a Home
	Hosts     []Host // those that can take at least one, nearest first
	Capacity  []int  // of each host, at least 1, and no more than may share a host
}

// Share is a number of processes on one host.
type Share struct {
	Host      int // index in Demand.Hosts
	Processes int
}

// Strategies lists the names that ByName accepts.
var Strategies = []string{"spread", "concentrate", "auto"}

// DefaultStrategy returns the name of the strategy for a job of which the user does not say any: auto where ranks have copies, since the
// others would have a set of copies at several sites, or communicate along a graph, and else spread.
func DefaultStrategy(job Job) string {
	if job.Copies > 1 || job.Graph != nil {
		return Auto{}.Name()
	}
	return Spread{}.Name()
}

// ByName returns the named strategy. network has the measurements for auto and for graphs; nil: none.
func ByName(name string, network Network) (Strategy, error) {
	switch name {
	case "spread":
		return Spread{}, nil
	case "concentrate":
		return Concentrate{}, nil
	case "auto":
		return Auto{Network: network}, nil
	}
	if slices.Contains(GraphStrategies, name) {
		return Mapped{Algorithm: name, Network: network}, nil
	}
	return nil, fmt.Errorf("no strategy %.40q: want one of %q, or with a graph of %q", name, Strategies, GraphStrategies)
}

// Allocate places job on hosts, which must be in the order in which to use them: nearest first, as
// Order returns them, or by a table of latencies with a stable order. The error is a *Shortage when
// the hosts cannot take the job.
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
	if err := d.checkContract(shares); err != nil {
		return nil, fmt.Errorf("strategy %s broke its promise: %w", strategy.Name(), err)
	}
	return newPlan(job, strategy.Name(), hosts, at, shares), nil
}

// Settled reports whether the job can be placed on these hosts and no host further away would
// change the placement.
func Settled(job Job, hosts []Host, strategy Strategy) bool {
	if job.Check() != nil || check(job, hosts) != nil || !fits(job, hosts) {
		return false
	}
	d, _ := demand(job, hosts)
	return strategy.Settled(d)
}

// errTwice and errNoHome are the errors in a list of hosts.
var (
	errTwice  = errors.New("is in the list of hosts twice")
	errNoHome = errors.New("must run rank 0 but is not among the hosts")
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

// demand returns the strategy's part of the job, and for each of its hosts the index in hosts.
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

// shared returns how many processes a strategy may place on h: without rank 0 if that is pinned
// there, and no more than there are ranks, because otherwise two copies of one would share the
// host.
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

// checkContract returns an error if shares violate the contract of Strategy.Place.
func (d Demand) checkContract(shares []Share) error {
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
