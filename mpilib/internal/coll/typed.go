package coll

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/isthmus-grid/isthmus/collectives"
	"github.com/isthmus-grid/isthmus/mpilib/internal/buffer"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
)

// This file has the library's own collective calls: values of Go types, the same on all ranks of
// one group.

// Allreduce is collectives.Allreduce of elements.
func Allreduce[T any](ctx context.Context, call collectives.Comm, in, out []T, op collectives.Op) error {
	s, r, _, err := buffer.Views(in, out)
	if err != nil {
		return err
	}
	return collectives.Allreduce(ctx, call, s, r, op)
}

// Allgather returns the values of all ranks, by rank.
func Allgather[T any](ctx context.Context, call collectives.Comm, size int, mine T) ([]T, error) {
	all := make([]T, size)
	s, r, _, err := buffer.Views([]T{mine}, all)
	if err != nil {
		return nil, err
	}
	return all, collectives.Allgather(ctx, call, s, r)
}

// Bcast sends root's values to all ranks.
func Bcast[T any](ctx context.Context, call collectives.Comm, values []T, root int) error {
	b, err := buffer.View(values)
	if err != nil {
		return err
	}
	return collectives.Bcast(ctx, call, b, root)
}

// Distribute sends bound[r] to each rank r, and returns the values received, by sender.
func Distribute[T any](ctx context.Context, call collectives.Comm, bound [][]T) ([]T, error) {
	p := len(bound)
	var out []T
	scounts, sdispls := make([]int, p), make([]int, p)
	for r, list := range bound {
		scounts[r], sdispls[r] = len(list), len(out)
		out = append(out, list...)
	}
	rcounts, rdispls := make([]int, p), make([]int, p)
	s, r, _, err := buffer.Views(scounts, rcounts)
	if err != nil {
		return nil, err
	}
	if err := collectives.Alltoall(ctx, call, s, r); err != nil {
		return nil, err
	}
	total := 0
	for i, n := range rcounts {
		rdispls[i] = total
		total += n
	}
	in := make([]T, total)
	s, r, _, err = buffer.Views(out, in)
	if err != nil {
		return nil, err
	}
	return in, collectives.Alltoallv(ctx, call, s, buffer.Times[T](scounts), buffer.Times[T](sdispls), r, buffer.Times[T](rcounts), buffer.Times[T](rdispls))
}

// GatherBytes returns, at root, the bytes of all ranks, by rank; nil elsewhere.
func GatherBytes(ctx context.Context, call collectives.Comm, rank, size int, mine []byte, root int) ([][]byte, error) {
	lengths, err := Allgather(ctx, call, size, int64(len(mine)))
	if err != nil {
		return nil, err
	}
	counts, displs, sum := make([]int, len(lengths)), make([]int, len(lengths)), 0
	for r, n := range lengths {
		counts[r], displs[r] = int(n), sum
		sum += int(n)
	}
	var all []byte
	if rank == root {
		all = make([]byte, sum)
	}
	if err := collectives.Gatherv(ctx, call, mine, all, counts, displs, root); err != nil || rank != root {
		return nil, err
	}
	parts := make([][]byte, size)
	for r := range parts {
		parts[r] = all[displs[r]:][:counts[r]]
	}
	return parts, nil
}

// BcastBytes returns root's bytes on all ranks.
func BcastBytes(ctx context.Context, call collectives.Comm, rank int, b []byte, root int) ([]byte, error) {
	length := []int64{int64(len(b))}
	if err := Bcast(ctx, call, length, root); err != nil {
		return nil, err
	}
	if rank != root {
		b = make([]byte, length[0])
	}
	return b, Bcast(ctx, call, b, root)
}

// Swap sends out to rank to of line, the other group's leader, and receives into in from it.
func Swap[T any](ctx context.Context, line Call, to int, out, in []T) error {
	o, i, _, err := buffer.Views(out, in)
	if err != nil {
		return err
	}
	receiving, sending := line.Irecv(to, 0, i), line.Isend(to, 0, o)
	sendErr, receiveErr := sending.Wait(ctx), receiving.Wait(ctx)
	if err := mpi.FirstOf(receiveErr, sendErr); err != nil {
		return fmt.Errorf("talking to rank %d of the world, the other group's leader: %w", line.Global(to), err)
	}
	return nil
}

func send(ctx context.Context, call collectives.Comm, to int, b []byte) error {
	return call.Isend(to, 0, b).Wait(ctx)
}

func receive(ctx context.Context, call collectives.Comm, from int, b []byte) error {
	return call.Irecv(from, 0, b).Wait(ctx)
}

// Max is the greatest of the ranks' values.
func Max() collectives.Op {
	return op("max", true, 8, func(inout, in []uint64) {
		for i, v := range in {
			inout[i] = max(v, inout[i])
		}
	})
}

// Op is a reduction of elements over raw memory; apply may be nil, which is an error.
func Op[T any](name string, commutative bool, apply func(inout, in []T)) (collectives.Op, error) {
	size, err := buffer.Size[T]()
	if err != nil {
		return collectives.Op{}, err
	}
	if apply == nil {
		return collectives.Op{}, fmt.Errorf("mpilib: %w: operator %q has no function", mpi.ErrType, name)
	}
	return op(name, commutative, size, apply), nil
}

// op is for elements of size bytes. Vectors within an algorithm's scratch space may be unaligned
// for T; those are copied.
func op[T any](name string, commutative bool, size int, apply func(inout, in []T)) collectives.Op {
	return collectives.Op{Name: name, Elem: size, Commutative: commutative, Apply: func(inout, in []byte) error {
		a, aCopied := aligned[T](inout, size)
		b, _ := aligned[T](in, size)
		apply(a, b)
		if aCopied {
			v, _ := buffer.View(a)
			copy(inout, v)
		}
		return nil
	}}
}

// aligned returns b as elements, in place if b's address allows it.
func aligned[T any](b []byte, size int) (elems []T, copied bool) {
	var t T
	if uintptr(unsafe.Pointer(unsafe.SliceData(b)))%unsafe.Alignof(t) == 0 {
		return buffer.Typed[T](b, size), false
	}
	elems = make([]T, len(b)/size)
	v, _ := buffer.View(elems) // T was checked before
	copy(v, b)
	return elems, true
}
