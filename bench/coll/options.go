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

// Options select what to measure. An empty list of scenario parameters means the standard
// scenarios; see the method scenarios.
type Options struct {
	// Self is the command line of this program; with "bench coll --part" appended it is a
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
	Root        int      // of collectives that have a root
	Peers       []string // of PeerNames(); those that are not installed are skipped
	Algorithms  bool     // also each of our algorithms, forced
	Flits       []int    // also each of our algorithms that cuts messages, with this number of flits
	NoChoice    bool     // algorithms that are forced, and neither our choice nor the peers

	Counts  bool // count the traffic between sites instead; only for our implementation
	Packets bool // with Counts, also count it in the emulator, over repeated calls

	Only    *regexp.Regexp // rows to measure, by SCENARIO/COLLECTIVE/SIZE/IMPLEMENTATION; nil is all
	Repeat  int            // rounds
	Longest time.Duration  // calls whose bound is longer are skipped
	JSON    bool
	Err     io.Writer // for progress messages; not nil
}

// The implementations, by their names in rows.
const (
	nameOurs  = "isthmus"
	nameTuned = "openmpi-tuned"
	nameHAN   = "openmpi-han"
	nameMPICH = "mpich"
)

// PeerNames returns the implementations for comparison: Open MPI with its default flat
// algorithms and with its hierarchical ones, and MPICH.
func PeerNames() []string { return []string{nameTuned, nameHAN, nameMPICH} }

// The orders of ranks: blocked by site, or round-robin over the sites.
const (
	blocked    = "blocked"
	roundRobin = "round-robin"
)

// Orders returns the ways to assign ranks to sites.
func Orders() []string { return []string{blocked, roundRobin} }

// Standard returns the default collectives. With equal counts the v-collectives behave like
// those without counts.
func Standard() []operation.Operation {
	return []operation.Operation{operation.Barrier, operation.Bcast, operation.Reduce, operation.Allreduce, operation.Gather, operation.Scatter, operation.Allgather, operation.Alltoall, operation.ReduceScatterBlock, operation.Scan}
}

// StandardSizes returns the default sizes.
func StandardSizes() []int { return []int{8, kib, 16 * kib, 64 * kib, 256 * kib, mib, 4 * mib} }

const (
	kib = 1 << 10
	mib = 1 << 20
)

// Check returns what is wrong with the options, or nil.
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

// number is the size in bytes of an element of reductions.
const number = 8
