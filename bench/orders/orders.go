// Package orders distributes orders to all ranks of a benchmark's job. The benchmark writes orders,
// one per line, to the standard input of rank 0.
package orders

import (
	"bufio"
	"context"
	"fmt"
	"io"

	"github.com/isthmus-grid/isthmus/mpilib"
)

// Most is the maximum length of an order in bytes.
const Most = 128

// A Reader returns the orders. One goroutine of each rank uses it.
type Reader struct {
	comm  *mpilib.Comm
	tag   int
	lines *bufio.Scanner
}

// New returns a Reader of the orders in in, which is read only at rank 0. Its messages have the
// given tag.
func New(comm *mpilib.Comm, tag int, in io.Reader) *Reader {
	return &Reader{comm, tag, bufio.NewScanner(in)}
}

// Next returns the next order, the same on all ranks, or "" when there are no more. All ranks must
// call it.
func (r *Reader) Next(ctx context.Context) (string, error) {
	if r.comm.Rank() != 0 {
		buf := make([]byte, Most)
		st, err := mpilib.Recv(ctx, r.comm, buf, 0, r.tag)
		return string(buf[:st.Count]), err
	}
	line := ""
	if r.lines.Scan() {
		line = r.lines.Text()
		if len(line) > Most {
			return "", fmt.Errorf("an order of %d bytes: want at most %d", len(line), Most)
		}
	}
	for to := 1; to < r.comm.Size(); to++ {
		if err := mpilib.Send(ctx, r.comm, []byte(line), to, r.tag); err != nil {
			return "", err
		}
	}
	return line, r.lines.Err()
}
