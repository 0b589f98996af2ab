package carrier

import (
	"context"
	"io"
	"runtime"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/testkit"
)

// settle waits until count() is at most want.
func settle(t *testing.T, what string, want int, count func() int) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); count() > want; {
		if time.Now().After(end) {
			t.Fatalf("%d %s, want at most %d", count(), what, want)
		}
		time.Sleep(time.Millisecond)
	}
}

// A thousand joins, many of which end with errors and bytes in their pipes, leave nothing but the
// pool of idle pipes.
func TestNothingLeaks(t *testing.T) {
	t.Run("warm up", func(t *testing.T) { startJoin(t, context.Background(), Options{}) })
	fds, goroutines := testkit.Descriptors(t), runtime.NumGoroutine()
	for i := range 1000 {
		t.Run("", func(t *testing.T) {
			j := startJoin(t, context.Background(), Options{})
			io.WriteString(j.left, "hello")
			io.ReadFull(j.right, make([]byte, 5))
			if i%2 == 0 {
				j.right.SetLinger(0)
			}
			j.right.Close()
			io.WriteString(j.left, "more")
			j.left.Close()
			j.wait(t)
		})
	}
	settle(t, "goroutines", goroutines, runtime.NumGoroutine)
	settle(t, "descriptors", fds+2*maxIdlePipes, func() int { return testkit.Descriptors(t) })
	if n := len(pipes.idle); n > maxIdlePipes {
		t.Errorf("%d idle pipes are kept", n)
	}
}

// A link on which nothing moves holds no pipe.
func TestIdleJoinHoldsNoPipe(t *testing.T) {
	var joins []*joined
	for range 20 {
		joins = append(joins, startJoin(t, context.Background(), Options{}))
	}
	for _, j := range joins {
		io.WriteString(j.left, "hello")
		io.ReadFull(j.right, make([]byte, 5))
	}
	settle(t, "pipes in use", 0, func() int { return int(pipes.inUse.Load()) })
}
