package runner

import (
	"bufio"
	"context"
	"fmt"
	"io"

	"github.com/isthmus-grid/isthmus/mpilib"
)

// MaxOrder is the maximum length of an order in bytes.
const MaxOrder = 128

// Orders distributes orders to all ranks of a benchmark's job, which the benchmark writes, one per
// line, to the standard input of rank 0. One goroutine of each rank uses it.
type Orders struct {
	comm  *mpilib.Comm
	tag   int
	lines *bufio.Scanner
}

// NewOrders returns the orders in in, which is read only at rank 0. Their messages have the given
// tag.
func NewOrders(comm *mpilib.Comm, tag int, in io.Reader) *Orders {
	return &Orders{comm, tag, bufio.NewScanner(in)}
}

// Next returns the next order, the same on all ranks, or "" when there are no more. All ranks must
// call it.
func (r *Orders) Next(ctx context.Context) (string, error) {
	if r.comm.Rank() != 0 {
		buf := make([]byte, MaxOrder)
		st, err := mpilib.Recv(ctx, r.comm, buf, 0, r.tag)
		return string(buf[:st.Count]), err
	}
	line := ""
	if r.lines.Scan() {
		line = r.lines.Text()
		if len(line) > MaxOrder {
			return "", fmt.Errorf("an order of %d bytes: want at most %d", len(line), MaxOrder)
		}
	}
	for to := 1; to < r.comm.Size(); to++ {
		if err := mpilib.Send(ctx, r.comm, []byte(line), to, r.tag); err != nil {
			return "", err
		}
	}
	return line, r.lines.Err()
}

// Obey carries out every order by do and writes the answers to out, at rank 0, until there are no
// more.
func (r *Orders) Obey(ctx context.Context, out io.Writer, do func(ctx context.Context, order string) (answer string, err error)) error {
	for {
		order, err := r.Next(ctx)
		if err != nil || order == "" {
			return err
		}
		answer, err := do(ctx, order)
		if err != nil {
			return fmt.Errorf("order %q: %w", order, err)
		}
		if r.comm.Rank() == 0 {
			fmt.Fprintln(out, answer)
		}
	}
}
