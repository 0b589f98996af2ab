// Package orders tells all ranks of a benchmark's job what to do next. The
// benchmark writes orders, a line each, to the standard input of rank 0.
package orders

import (
	"bufio"
	"context"
	"fmt"
	"io"

	"github.com/isthmus-grid/isthmus/mpilib"
)

// Most is how many bytes an order has at most.
const Most = 128

// A Reader hands the orders out. One goroutine of each rank uses it.
type Reader struct {
	comm  *mpilib.Comm
	tag   int
	lines *bufio.Scanner
}

// New returns a Reader of the orders that in has, which is read at rank 0 alone. Its
// messages have that tag.
func New(comm *mpilib.Comm, tag int, in io.Reader) *Reader {
	return &Reader{comm, tag, bufio.NewScanner(in)}
}

// Next returns the next order, the same on all ranks, or "" when there is none any
// more. All make the call.
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
