package collectives

import "fmt"

// Args are the arguments of one collective call on one rank. Each collective
// uses the fields its function in calls.go has parameters for, with the same
// meaning; Bcast's buffer is Recv. The slices belong to the call until it
// returns.
type Args struct {
	Send, Recv []byte

	SendCounts, SendDispls []int // bytes, one per rank
	RecvCounts, RecvDispls []int // bytes, one per rank

	Root int
	Op   Op
}

// Shape is what the choice of an algorithm may depend on. Every rank of a call
// sees the same Shape, so every rank makes the same choice.
type Shape struct {
	Ranks int
	// Bytes is the length of the vector (bcast, reduce, allreduce) or of one
	// rank's block (gather, allgather, scatter, alltoall). It is zero where
	// ranks need not agree on one: barrier and the v-collectives.
	Bytes int
	// Commutative tells of a reduction's operator.
	Commutative bool
}

func (a *Args) shape(collective string, p int) Shape {
	s := Shape{Ranks: p, Commutative: a.Op.Commutative}
	switch collective {
	case "bcast", "scatter":
		s.Bytes = len(a.Recv)
	case "reduce", "allreduce", "gather", "allgather":
		s.Bytes = len(a.Send)
	case "alltoall":
		s.Bytes = len(a.Send) / p
	}
	return s
}

// check refuses what cannot be meant, before anything is sent.
func (a *Args) check(collective string, rank, p int) error {
	atRoot := rank == a.Root
	switch collective {
	case "bcast", "reduce", "gather", "gatherv", "scatter":
		if a.Root < 0 || a.Root >= p {
			return fmt.Errorf("root %d of %d ranks: %w", a.Root, p, ErrArgument)
		}
	}
	switch collective {
	case "reduce", "allreduce":
		if err := a.Op.check(len(a.Send)); err != nil {
			return err
		}
		if atRoot || collective == "allreduce" {
			return wantLen("receive buffer", len(a.Recv), len(a.Send))
		}
	case "gather", "allgather":
		if atRoot || collective == "allgather" {
			return wantLen("receive buffer", len(a.Recv), p*len(a.Send))
		}
	case "scatter":
		if atRoot {
			return wantLen("send buffer", len(a.Send), p*len(a.Recv))
		}
	case "alltoall":
		if len(a.Send)%p != 0 {
			return fmt.Errorf("send buffer of %d bytes is not %d equal blocks: %w", len(a.Send), p, ErrArgument)
		}
		return wantLen("receive buffer", len(a.Recv), len(a.Send))
	case "gatherv":
		if !atRoot {
			return nil
		}
		if err := checkBlocks("receive", a.Recv, a.RecvCounts, a.RecvDispls, p); err != nil {
			return err
		}
		return wantLen("root's own send buffer", len(a.Send), a.RecvCounts[rank])
	case "alltoallv":
		if err := checkBlocks("send", a.Send, a.SendCounts, a.SendDispls, p); err != nil {
			return err
		}
		if err := checkBlocks("receive", a.Recv, a.RecvCounts, a.RecvDispls, p); err != nil {
			return err
		}
		return wantLen("own receive block", a.RecvCounts[rank], a.SendCounts[rank])
	}
	return nil
}

func (op Op) check(n int) error {
	switch {
	case op.Apply == nil:
		return fmt.Errorf("operator %q has no Apply: %w", op.Name, ErrArgument)
	case op.Elem < 1:
		return fmt.Errorf("operator %q has elements of %d bytes: %w", op.Name, op.Elem, ErrArgument)
	case n%op.Elem != 0:
		return fmt.Errorf("vector of %d bytes is not whole elements of %d bytes: %w", n, op.Elem, ErrArgument)
	}
	return nil
}

// apply is Apply, spared empty vectors and named in its error.
func (op Op) apply(inout, in []byte) error {
	if len(in) == 0 {
		return nil
	}
	if err := op.Apply(inout, in); err != nil {
		return fmt.Errorf("operator %q: %w", op.Name, err)
	}
	return nil
}

func wantLen(what string, have, want int) error {
	if have != want {
		return fmt.Errorf("%s has %d bytes, want %d: %w", what, have, want, ErrArgument)
	}
	return nil
}

// checkBlocks is careful with sums: counts and displacements may be anything.
func checkBlocks(what string, buf []byte, counts, displs []int, p int) error {
	if len(counts) != p || len(displs) != p {
		return fmt.Errorf("%d %s counts and %d displacements for %d ranks: %w", len(counts), what, len(displs), p, ErrArgument)
	}
	for r := range p {
		if counts[r] < 0 || displs[r] < 0 || displs[r] > len(buf) || counts[r] > len(buf)-displs[r] {
			return fmt.Errorf("%s block of rank %d, %d bytes at %d, is outside the buffer of %d: %w",
				what, r, counts[r], displs[r], len(buf), ErrArgument)
		}
	}
	return nil
}
