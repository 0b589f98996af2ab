package coll

import (
	"fmt"

	"github.com/isthmus-grid/isthmus/collectives"
	"github.com/isthmus-grid/isthmus/collectives/operation"
	"github.com/isthmus-grid/isthmus/collectives/schedule"
)

// A crossing is the traffic from any site to another.
type crossing struct{ messages, bytes int }

// layout returns the scenario's sites and hosts in the form that collectives use.
func (s *scenario) layout() collectives.Layout {
	l := make(collectives.Layout, 2)
	hosts := map[string]int{}
	for rank, place := range s.places() {
		if _, known := hosts[place]; !known {
			hosts[place] = len(hosts)
		}
		l[0], l[1] = append(l[0], s.site(rank)), append(l[1], hosts[place])
	}
	return l
}

// scheduled returns what crosses between sites in an algorithm's schedules for a call of f. An
// algorithm over shared memory has no schedule, and nothing crosses.
func (s *scenario) scheduled(f figure, algorithm string, root int) (crossing, error) {
	a, err := collectives.Find(f.collective, algorithm)
	if err != nil || a.Needs.Has(collectives.SharedMemory) {
		return crossing{}, err
	}
	layout := s.layout()
	n := s.sites * s.ranks
	all := make([]*schedule.Schedule, n)
	for rank := range all {
		all[rank] = a.Schedule(rank, n, layout, arguments(f, rank, n, root))
	}
	out, err := schedule.Simulate(all, &schedule.Grid{Site: layout[0]}, nil, nil)
	if err != nil {
		return crossing{}, fmt.Errorf("%s %s: %w", f.collective, algorithm, err)
	}
	messages, bytes := out.Far()
	return crossing{messages, bytes}, nil
}

// like returns the first algorithm, with the fewest flits, whose schedules send exactly c between
// sites, or "".
func (s *scenario) like(f figure, root int, got crossing) (string, error) {
	for flits := 1; flits <= 32; flits *= 2 {
		for _, a := range collectives.Algorithms(f.collective) {
			v := variant{flits: flits, forced: map[operation.Operation]string{f.collective: a.Name}}
			if flits > 1 && a.Flits == 0 || !s.right(v, f.collective) {
				continue
			}
			c, err := s.scheduled(f, v.named(a.Name), root)
			if err != nil {
				return "", err
			}
			if c == got {
				return v.named(a.Name), nil
			}
		}
	}
	return "", nil
}

// arguments returns a rank's arguments in a call of f. Only their lengths matter.
func arguments(f figure, rank, n, root int) *collectives.Args {
	a := &collectives.Args{Root: root}
	if f.collective.Reduces() {
		a.Op = collectives.Op{Name: "sum", Elem: number, Commutative: true}
	}
	one, all := make([]byte, f.size), make([]byte, n*f.size)
	counts, displs := make([]int, n), make([]int, n)
	for r := range n {
		counts[r], displs[r] = f.size, r*f.size
	}
	switch f.collective {
	case operation.Bcast:
		a.Recv = one
	case operation.Reduce, operation.Allreduce, operation.Scan, operation.Exscan:
		a.Send, a.Recv = one, make([]byte, f.size)
		if f.collective == operation.Reduce && rank != root {
			a.Recv = nil
		}
	case operation.Gather, operation.Gatherv:
		a.Send = one
		if rank == root {
			a.Recv, a.RecvCounts, a.RecvDispls = all, counts, displs
		}
	case operation.Scatter, operation.Scatterv:
		a.Recv = one
		if rank == root {
			a.Send, a.SendCounts, a.SendDispls = all, counts, displs
		}
	case operation.Allgather, operation.Allgatherv:
		a.Send, a.Recv, a.RecvCounts, a.RecvDispls = one, all, counts, displs
	case operation.Alltoall, operation.Alltoallv:
		a.Send, a.Recv = all, make([]byte, n*f.size)
		a.SendCounts, a.SendDispls, a.RecvCounts, a.RecvDispls = counts, displs, counts, displs
	case operation.ReduceScatterBlock, operation.ReduceScatter:
		a.Send, a.Recv, a.RecvCounts, a.RecvDispls = all, one, counts, displs
	}
	return a
}

// tabled returns what must cross if any two sites that exchange data do so in one message,
// whatever the order of the ranks. It is known for the two-level algorithms, with C sites of n
// ranks, P in all, and m bytes:
//
//	bcast, reduce           C-1 messages   (C-1) m bytes
//	gather, scatter         C-1            (P-n) m
//	barrier                 C(C-1)         0
//	allreduce               C(C-1)         C(C-1) m
//	allgather               C(C-1)         (C-1) P m
//	alltoall                C(C-1)         (P^2 - C n^2) m, as without levels
//	reduce_scatter_block    C(C-1)         C(C-1) n m
//	scan, exscan            C(C-1)/2       C(C-1)/2 m, for ranks in the order of their sites
//
// By way of one site (two-level-star) a barrier has 2(C-1) messages, and so has an allreduce, of m bytes each.
// The pairwise alltoall sends a message for each pair of ranks: P^2 - C n^2.
func (s *scenario) tabled(f figure, algorithm string) (crossing, bool) {
	c, n, m := s.sites, s.ranks, f.size
	p, pairs := c*n, c*(c-1)
	apart := p*p - c*n*n // pairs of ranks at different sites
	if algorithm == "pairwise" && f.collective == operation.Alltoall {
		return crossing{apart, apart * m}, true
	}
	if algorithm == "two-level-star" {
		return crossing{2 * (c - 1), 2 * (c - 1) * m}, true
	}
	if algorithm != "two-level" {
		return crossing{}, false
	}
	switch f.collective {
	case operation.Bcast, operation.Reduce:
		return crossing{c - 1, (c - 1) * m}, true
	case operation.Gather, operation.Scatter:
		return crossing{c - 1, (p - n) * m}, true
	case operation.Barrier:
		return crossing{pairs, 0}, true
	case operation.Allreduce:
		return crossing{pairs, pairs * m}, true
	case operation.Allgather:
		return crossing{pairs, (c - 1) * p * m}, true
	case operation.Alltoall:
		return crossing{pairs, apart * m}, true
	case operation.ReduceScatterBlock:
		return crossing{pairs, pairs * n * m}, true
	case operation.Scan, operation.Exscan:
		return crossing{pairs / 2, pairs / 2 * m}, s.order == blocked
	}
	return crossing{}, false
}
