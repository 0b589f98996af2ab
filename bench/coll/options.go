package coll

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/collectives/operation"
)

// Options say what to measure. The zero value of a list that makes scenarios means the
// standard ones; see the method scenarios.
type Options struct {
	// Self is the command line of this program; "bench coll --part" behind it makes it a
	// rank. Element 0 is a path.
	Self []string

	Sites  []int           // numbers of sites
	Ranks  int             // at each site
	Nodes  int             // hosts of each site, among which its ranks are divided
	RTT    []time.Duration // between any two sites; 0 is no delay
	Rate   []int64         // bit/s of each site's link; 0 is no limit
	Orders []string        // of Orders()
	Local  bool            // also within one host, and one site

	Collectives []operation.Operation
	Sizes       []int    // bytes, as bound.Of takes them
	Root        int      // of those that have one
	Peers       []string // of PeerNames(); those that are not installed are left out
	Algorithms  bool     // also each of our algorithms, forced
	Flits       []int    // also each of our algorithms that cuts messages, into so many pieces

	Counts bool // instead of times, how much crosses between sites; of ours only

	Only    *regexp.Regexp // rows to measure, by SCENARIO/COLLECTIVE/SIZE/IMPLEMENTATION; nil is all
	Repeat  int            // rounds
	Longest time.Duration  // what must take longer is left out
	JSON    bool
	Err     io.Writer // for people to see what goes on; not nil
}

// The implementations, as rows call them.
const (
	nameOurs  = "isthmus"
	nameTuned = "openmpi-tuned"
	nameHAN   = "openmpi-han"
	nameMPICH = "mpich"
)

// PeerNames are whom ours can be compared with: Open MPI with its usual choice among flat
// algorithms, and with its hierarchical ones, and MPICH.
func PeerNames() []string { return []string{nameTuned, nameHAN, nameMPICH} }

// The orders of ranks: blocked by site, or round-robin over the sites.
const (
	blocked    = "blocked"
	roundRobin = "round-robin"
)

// Orders are in which ways ranks can be assigned to sites.
func Orders() []string { return []string{blocked, roundRobin} }

// Standard are the collectives that are measured unless others are asked for: the
// v-collectives are like those without counts where these are equal.
func Standard() []operation.Operation {
	return []operation.Operation{operation.Barrier, operation.Bcast, operation.Reduce, operation.Allreduce, operation.Gather, operation.Scatter, operation.Allgather, operation.Alltoall, operation.ReduceScatterBlock, operation.Scan}
}

// StandardSizes are the sizes that are measured unless others are asked for.
func StandardSizes() []int { return []int{8, kib, 16 * kib, 64 * kib, 256 * kib, mib, 4 * mib} }

const (
	kib = 1 << 10
	mib = 1 << 20
)

// Check says what is wrong with the options, or returns nil.
func (o Options) Check() error {
	for _, list := range []struct {
		what      string
		got, want []string
	}{
		{"peers", o.Peers, PeerNames()}, {"order", o.Orders, Orders()},
	} {
		for i, name := range list.got {
			if !slices.Contains(list.want, name) || slices.Contains(list.got[:i], name) {
				return fmt.Errorf("--%s: %q: want some of %s, each once", list.what, name, strings.Join(list.want, ", "))
			}
		}
	}
	for i, c := range o.Collectives {
		if !slices.Contains(operation.All(), c) || slices.Contains(o.Collectives[:i], c) {
			return fmt.Errorf("--collectives: %v: want collectives, each once", c)
		}
	}
	for _, n := range o.Sites {
		if n < 2 || n > 32 {
			return fmt.Errorf("--sites %d: want 2 to 32; --near is within one", n)
		}
	}
	switch {
	case o.Ranks < 1 || o.Ranks > 64:
		return fmt.Errorf("--ranks %d: want 1 to 64 at each site", o.Ranks)
	case o.Nodes < 1 || o.Ranks%o.Nodes != 0:
		return fmt.Errorf("--nodes %d: want a number that divides the %d ranks of a site", o.Nodes, o.Ranks)
	case o.Root < 0 || o.Root >= 2*o.Ranks || o.Local && o.Root >= localRanks:
		return fmt.Errorf("--root %d: not a rank of every scenario", o.Root)
	case o.Repeat < 1:
		return fmt.Errorf("--repeat %d: want 1 or more", o.Repeat)
	case o.Longest <= 0:
		return fmt.Errorf("--longest %v: want more than 0", o.Longest)
	}
	for _, d := range o.RTT {
		if d < 0 || d > time.Second {
			return fmt.Errorf("--rtt %v: want 0 to 1s", d)
		}
	}
	for _, s := range o.Sizes {
		if s < 0 || s%number != 0 || s > 64*mib {
			return fmt.Errorf("--sizes: %d bytes: want whole numbers of %d bytes, up to 64 MiB", s, number)
		}
	}
	for _, f := range o.Flits {
		if f < 1 {
			return fmt.Errorf("--flits %d: want 1 or more", f)
		}
	}
	return nil
}

// number is how many bytes one has that is reduced.
const number = 8
