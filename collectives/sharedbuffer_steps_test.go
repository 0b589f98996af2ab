package collectives

import (
	"context"
	"testing"

	"github.com/isthmus-grid/isthmus/collectives/operation"
	"github.com/isthmus-grid/isthmus/internal/testload"
)

// counter is a shared buffer whose posts are not read. It counts the steps.
type counter struct {
	piece, steps int
	zeros        []byte
}

func (c *counter) Posts() int                                { return c.piece }
func (c *counter) Post(context.Context, []byte) error        { c.steps++; return nil }
func (c *counter) PostParts(context.Context, [][]byte) error { c.steps++; return nil }
func (c *counter) Read(_ context.Context, _, n int) ([]byte, error) {
	return c.zeros[:n], nil
}

// TestSharedBufferSteps: the longest call that uses a shared buffer has no more steps than stamps
// are kept for.
func TestSharedBufferSteps(t *testing.T) {
	const piece = 64 << 10
	ctx := context.Background()
	for collective, most := range map[operation.Operation]func(n, size int) Args{
		operation.Bcast:              func(n, _ int) Args { return Args{Recv: make([]byte, n)} },
		operation.Reduce:             func(n, _ int) Args { return Args{Send: make([]byte, n), Recv: make([]byte, n)} },
		operation.Allreduce:          func(n, _ int) Args { return Args{Send: make([]byte, n), Recv: make([]byte, n)} },
		operation.Scan:               func(n, _ int) Args { return Args{Send: make([]byte, n), Recv: make([]byte, n)} },
		operation.Allgather:          func(n, size int) Args { return Args{Send: make([]byte, n), Recv: make([]byte, n*size)} },
		operation.Alltoall:           func(n, size int) Args { return Args{Send: make([]byte, n*size), Recv: make([]byte, n*size)} },
		operation.Scatter:            func(n, size int) Args { return Args{Send: make([]byte, n*size), Recv: make([]byte, n)} },
		operation.ReduceScatterBlock: func(n, size int) Args { return Args{Send: make([]byte, n*size), Recv: make([]byte, n)} },
	} {
		for _, size := range []int{2, maxSharing} {
			if size == 2 && !testload.Full() {
				continue // the more ranks, the more steps
			}
			for _, elem := range []int{1, piece/size/2 + 1} {
				alg, err := Find(collective, sharedBuffer)
				if err != nil {
					t.Fatal(err)
				}
				s := Shape{Elem: elem, Posts: piece}
				for n := elem; n <= 1<<30; n *= 2 { // also of lengths that are forced only
					if longer := (Shape{Bytes: n, Elem: elem, Posts: piece}); alg.unmetNeeds(group{size: size}, longer) == 0 {
						s.Bytes = n
					}
				}
				a := most(s.Bytes, size)
				a.Op = Op{Elem: elem, Apply: func(_, _ []byte) error { return nil }}
				p, err := NewPlanner(0, size, nil)
				if err != nil {
					t.Fatal(err)
				}
				c := &counter{piece: piece, zeros: make([]byte, piece)}
				if err := alg.runShared(ctx, c, p, &a); err != nil || c.steps > MaxSteps {
					t.Errorf("%s of %d bytes, %d ranks, elements of %d: %d steps, %v", collective, s.Bytes, size, elem, c.steps, err)
				}
			}
		}
	}
}
