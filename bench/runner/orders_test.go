package runner

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/mpilib"
)

func TestOrders(t *testing.T) {
	mpilib.TestWorld(t, 3, func(ctx context.Context, comm *mpilib.Comm) error {
		r := NewOrders(comm, 5, strings.NewReader("first\nsecond 2\n"))
		for _, want := range []string{"first", "second 2", ""} {
			if got, err := r.Next(ctx); got != want || err != nil {
				return fmt.Errorf("order %q, %v; want %q", got, err, want)
			}
		}
		return nil
	})
	mpilib.TestWorld(t, 1, func(ctx context.Context, comm *mpilib.Comm) error {
		long := strings.Repeat("x", MaxOrder)
		r := NewOrders(comm, 5, strings.NewReader(long+"\n"+long+"x\n"))
		if got, err := r.Next(ctx); got != long || err != nil {
			return fmt.Errorf("the longest order: %q, %v", got, err)
		}
		if _, err := r.Next(ctx); err == nil || !strings.Contains(err.Error(), "129 bytes") {
			return fmt.Errorf("one that is too long: %v", err)
		}
		return nil
	})
}
