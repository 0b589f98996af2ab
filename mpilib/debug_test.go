package mpilib

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-grid/isthmus/mpilib/internal/debug"
)

// notes collects the reports of the debug mode of several ranks.
type notes struct {
	mu   sync.Mutex
	text strings.Builder
	wake chan struct{} // closed at the first report with want
	want string
}

func listenFor(want string) *notes { return &notes{wake: make(chan struct{}), want: want} }

func (n *notes) Write(b []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	had := strings.Contains(n.text.String(), n.want)
	n.text.Write(b)
	if !had && strings.Contains(n.text.String(), n.want) {
		close(n.wake)
	}
	return len(b), nil
}

func (n *notes) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.String()
}

// inBubble runs a subtest in a bubble of synctest.
func inBubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// lineHere returns the line offset lines below that of its call, in the format of reports.
func lineHere(offset int) string {
	_, _, line, _ := runtime.Caller(1)
	return fmt.Sprintf("mpilib/debug_test.go:%d", line+offset)
}

func TestDebugWords(t *testing.T) {
	for text, want := range map[string]debug.Parts{
		"": 0, "0": 0, "1": debug.All, "all": debug.All, "leaks": debug.Leaks, "types, deadlocks": debug.Types | debug.Deadlocks,
	} {
		got, err := debugFrom(func(string) (string, bool) { return text, true })
		if err != nil || got != want {
			t.Errorf("%q: %b, %v", text, got, err)
		}
	}
	if got, err := debugFrom(func(string) (string, bool) { return "all", false }); got != 0 || err != nil {
		t.Errorf("not set: %b, %v", got, err)
	}
	if _, err := debugFrom(func(string) (string, bool) { return "leaks,leeks", true }); !errors.Is(err, ErrEnv) || !strings.Contains(err.Error(), `"leeks"`) {
		t.Errorf("%v", err)
	}
}

// Finalize reports leaks with the line of the call, and reports nothing if there are none.
func TestDebugLeaks(t *testing.T) {
	out := listenFor("")
	var request, unfinished, message, barrier string
	var dup, idup [2]string // the same lines on each rank
	TestWorld(t, 2, func(ctx context.Context, c *Comm) error {
		if c.Rank() == 0 {
			request = lineHere(1)
			Isend(c, []int32{1}, 1, 4)
			for range 3 {
				message = lineHere(1)
				if err := Send(ctx, c, []byte("lost"), 1, 5); err != nil {
					return err
				}
			}
		} else {
			if _, err := Recv(ctx, c, make([]int32, 1), 0, 4); err != nil {
				return err
			}
			unfinished = lineHere(1)
			Irecv(c, make([]byte, 1), 0, 6)
		}
		dup[c.Rank()] = lineHere(1)
		if _, err := c.Dup(ctx); err != nil {
			return err
		}
		idup[c.Rank()] = lineHere(1)
		if _, err := c.Idup(ctx).Wait(ctx); err != nil {
			return err
		}
		if c.Rank() == 0 {
			barrier = lineHere(1)
			r := Ibarrier(c)
			select { // does not count as waiting for the request, because it does not use the result
			case <-r.core.Finished():
			case <-ctx.Done():
				return ctx.Err()
			}
		} else if _, err := Ibarrier(c).Wait(ctx); err != nil {
			return err
		}
		freed, err := c.Dup(ctx)
		if err != nil {
			return err
		}
		return freed.Free()
	}, WithDebug(out))
	for _, want := range []string{
		"  a request that was never waited for, complete: send to rank 1 of world, tag 4 at " + request + "\n",
		"rank 1 leaves behind\n  a request that was never waited for, not complete: receive from rank 0 of world, tag 6 at " + unfinished + "\n",
		"  a request that was never waited for, complete: Ibarrier on world at " + barrier + "\n",
		"a communicator that was never freed: world dup 3, made by Dup at " + dup[0] + "\n",
		"a communicator that was never freed: world dup 4, made by Idup at " + idup[0] + "\n",
		"3 messages that were never received, 12 bytes: send to rank 1 of world, tag 5 at " + message + "\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if n := strings.Count(out.String(), "\n"); n != 2+3+4+1 {
		t.Errorf("%d lines, want 10:\n%s", n, out)
	}
}

func TestDebugIsSilent(t *testing.T) {
	for n := 1; n <= 4; n++ {
		out := listenFor("")
		TestWorld(t, n, func(ctx context.Context, c *Comm) error {
			sum := make([]int, 1)
			for range 20 {
				if err := Allreduce(ctx, c, []int{c.Rank()}, sum, Sum); err != nil {
					return err
				}
				if err := Bcast(ctx, c, sum, c.Size()-1); err != nil {
					return err
				}
				right, left := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
				if _, err := Sendrecv(ctx, c, []int{1}, right, 0, sum, left, 0); err != nil {
					return err
				}
			}
			halves, err := c.Split(ctx, c.Rank()%2, 0)
			if err != nil {
				return err
			}
			return errors.Join(Barrier(ctx, halves), halves.Free())
		}, WithDebug(out))
		if out.String() != "" {
			t.Errorf("%d ranks: %s", n, out)
		}
	}
}

// If ranks are in different calls, or give different arguments, all get a list of all calls.
func TestDebugMismatchedCollectives(t *testing.T) {
	for name, tc := range map[string]struct {
		call [2]func(context.Context, *Comm) error
		want [2]string
	}{
		"operation": {
			[2]func(context.Context, *Comm) error{
				func(ctx context.Context, c *Comm) error { return Bcast(ctx, c, make([]int64, 3), 0) },
				func(ctx context.Context, c *Comm) error { return Barrier(ctx, c) },
			}, [2]string{"ranks 0 2: Bcast(root 0, 3 int64) at ", "rank 1: Barrier at "}},
		"root": {
			[2]func(context.Context, *Comm) error{
				func(ctx context.Context, c *Comm) error { return Bcast(ctx, c, make([]int64, 3), 0) },
				func(ctx context.Context, c *Comm) error { return Bcast(ctx, c, make([]int64, 3), 1) },
			}, [2]string{"ranks 0 2: Bcast(root 0, 3 int64) at ", "rank 1: Bcast(root 1, 3 int64) at "}},
		"count": {
			[2]func(context.Context, *Comm) error{
				func(ctx context.Context, c *Comm) error {
					return Allreduce(ctx, c, make([]float64, 3), make([]float64, 3), Sum)
				},
				func(ctx context.Context, c *Comm) error {
					return Allreduce(ctx, c, make([]float64, 4), make([]float64, 4), Sum)
				},
			}, [2]string{"ranks 0 2: Allreduce(3 float64, sum) at ", "rank 1: Allreduce(4 float64, sum) at "}},
		"reduction": {
			[2]func(context.Context, *Comm) error{
				func(ctx context.Context, c *Comm) error {
					return Allreduce(ctx, c, make([]float64, 3), make([]float64, 3), Sum)
				},
				func(ctx context.Context, c *Comm) error {
					return Allreduce(ctx, c, make([]float64, 3), make([]float64, 3), Max)
				},
			}, [2]string{"Allreduce(3 float64, sum) at ", "rank 1: Allreduce(3 float64, max) at "}},
		"type": {
			[2]func(context.Context, *Comm) error{
				func(ctx context.Context, c *Comm) error {
					return Allgather(ctx, c, make([]float64, 1), make([]float64, 3))
				},
				func(ctx context.Context, c *Comm) error {
					return Allgather(ctx, c, make([]int64, 1), make([]int64, 3))
				},
			}, [2]string{"Allgather(1 float64) at ", "rank 1: Allgather(1 int64) at "}},
		"nonblocking": {
			[2]func(context.Context, *Comm) error{
				func(ctx context.Context, c *Comm) error { return second(Ibcast(c, make([]int64, 3), 0).Wait(ctx)) },
				func(ctx context.Context, c *Comm) error { return Bcast(ctx, c, make([]int64, 3), 0) },
			}, [2]string{"ranks 0 2: Ibcast(root 0, 3 int64) at ", "rank 1: Bcast(root 0, 3 int64) at "}},
		"persistent": {
			[2]func(context.Context, *Comm) error{
				func(ctx context.Context, c *Comm) error {
					return second(started(BcastInit(c, make([]int64, 3), 0)).Wait(ctx))
				},
				func(ctx context.Context, c *Comm) error {
					return second(started(BcastInit(c, make([]int64, 4), 0)).Wait(ctx))
				},
			}, [2]string{"ranks 0 2: BcastInit(root 0, 3 int64) at ", "rank 1: BcastInit(root 0, 4 int64) at "}},
		"making a communicator": {
			[2]func(context.Context, *Comm) error{
				func(ctx context.Context, c *Comm) error { _, err := c.Dup(ctx); return err },
				func(ctx context.Context, c *Comm) error { _, err := c.Idup(ctx).Wait(ctx); return err },
			}, [2]string{"Dup at ", "rank 1: Idup at "}},
	} {
		out := listenFor("")
		TestWorld(t, 3, func(ctx context.Context, c *Comm) error {
			if err := Barrier(ctx, c); err != nil {
				return err
			}
			err := tc.call[c.Rank()%2](ctx, c)
			if name == "making a communicator" && err == nil {
				return nil // the standard defines both as the same call, except for when they return
			}
			if !errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), tc.want[0]) || !strings.Contains(err.Error(), tc.want[1]) {
				return fmt.Errorf("%s: %v, want %q", name, err, tc.want)
			}
			return nil
		}, WithDebug(out))
		if strings.Count(out.String(), "not in the same collective call") != 1 {
			t.Errorf("%s:\n%s", name, out)
		}
	}
}

// The waiting ranks are reported once, with lines; ranks that can continue are not reported.
func TestDebugDeadlock(t *testing.T) {
	for name, tc := range map[string]struct {
		size int
		f    func(ctx context.Context, c *Comm) error
		want []string
	}{
		"two receives": {2, func(ctx context.Context, c *Comm) error {
			_, err := Recv(ctx, c, make([]int, 1), 1-c.Rank(), 3)
			return err
		}, []string{`ranks 0-1 can never go on; nothing has moved for \d+(\.\d+)?m?s`, `rank 0 waits for rank 1 waits for rank 0`,
			`rank 0: Recv: receive from rank 1 of world, tag 3 at mpilib/debug_test.go:\d+, for`}},
		"two synchronous sends": {2, func(ctx context.Context, c *Comm) error {
			return Ssend(ctx, c, []int{1}, 1-c.Rank(), 3)
		}, []string{`rank 1: Ssend: send to rank 0 of world, tag 3 at `}},
		"two large sends": {2, func(ctx context.Context, c *Comm) error {
			return Send(ctx, c, make([]byte, 20<<20), 1-c.Rank(), 3)
		}, []string{`rank 1: Send: send to rank 0 of world, tag 3 at `}},
		"a ring of three, and one who waits for it": {4, func(ctx context.Context, c *Comm) error {
			_, err := Recv(ctx, c, make([]int, 1), (c.Rank()+1)%3, 3)
			return err
		}, []string{`rank 0 waits for rank 1 waits for rank 2 waits for rank 0`}},
		"any source": {3, func(ctx context.Context, c *Comm) error {
			_, err := Recv(ctx, c, make([]int, 1), AnySource, 3)
			return err
		}, []string{`rank 2: Recv: receive from any rank of world, tag 3 at `}},
		"a collective that one does not come to": {3, func(ctx context.Context, c *Comm) error {
			if c.Rank() == 2 {
				r := Irecv(c, make([]int, 1), 0, 9)
				_, _, err := Waitany(ctx, r)
				return err
			}
			return Barrier(ctx, c)
		}, []string{`rank 0 waits for rank 2 waits for rank 0`, `rank 0: Barrier on world, until all ranks call it at `,
			`rank 2: Waitany: receive from rank 0 of world, tag 9 \(mpilib/debug_test.go:\d+\) at mpilib/debug_test.go:\d+`}},
		"a nonblocking collective that one does not come to": {3, func(ctx context.Context, c *Comm) error {
			if c.Rank() == 2 {
				_, err := Recv(ctx, c, make([]int, 1), 0, 9)
				return err
			}
			_, err := Ibarrier(c).Wait(ctx)
			return err
		}, []string{`rank 0 waits for rank 2 waits for rank 0`,
			`rank 0: Wait of Ibarrier on world, until all ranks call it at mpilib/debug_test.go:\d+ at mpilib/debug_test.go:\d+`}},
		"any of several, and one a nonblocking collective": {2, func(ctx context.Context, c *Comm) error {
			if c.Rank() == 1 {
				_, err := Recv(ctx, c, make([]int, 1), 0, 9)
				return err
			}
			_, _, err := Waitany(ctx, Ibarrier(c), Irecv(c, make([]int, 1), 1, 8))
			return err
		}, []string{`rank 0 waits for rank 1 waits for rank 0`, `rank 0: Waitany: Ibarrier on world, or any of 1 more`}},
		"one in Finalize": {2, func(ctx context.Context, c *Comm) error {
			if c.Rank() == 0 {
				return nil
			}
			_, err := Recv(ctx, c, make([]int, 1), 0, 3)
			if errors.Is(err, ErrFinalized) {
				err = context.Canceled
			}
			return err
		}, []string{`rank 1 waits for rank 0, which is in Finalize`, `rank 1: Recv: receive from rank 0 of world, tag 3`}},
		"a probe": {2, func(ctx context.Context, c *Comm) error {
			_, err := c.Probe(ctx, 1-c.Rank(), 3)
			return err
		}, []string{`rank 1: Probe: receive from rank 0 of world, tag 3 at `}},
		"itself": {1, func(ctx context.Context, c *Comm) error {
			_, err := Recv(ctx, c, make([]int, 1), 0, 3)
			return err
		}, []string{`rank 0 waits for rank 0`}},
	} {
		inBubble(t, name, func(t *testing.T) {
			out := listenFor("deadlock:")
			memoryWorld(t, tc.size, func(ctx context.Context, c *Comm) error {
				ctx, cancel := context.WithCancel(ctx)
				defer cancel()
				go func() {
					select {
					case <-out.wake:
					case <-ctx.Done():
					}
					cancel()
				}()
				if err := tc.f(ctx, c); err != nil && !errors.Is(err, context.Canceled) {
					return err
				}
				return nil
			}, nil, WithDebug(out))
			for _, want := range tc.want {
				if !regexp.MustCompile(want).MatchString(out.String()) {
					t.Errorf("no %q in\n%s", want, out)
				}
			}
			if n := strings.Count(out.String(), "deadlock:"); n != 1 {
				t.Errorf("reported %d times:\n%s", n, out)
			}
		})
	}
}

// trickling is a connection that transfers one megabyte per second.
type trickling struct{ net.Conn }

func (c trickling) Write(b []byte) (n int, err error) {
	for len(b) > 0 && err == nil {
		piece := b[:min(len(b), 10_000)]
		time.Sleep(time.Duration(len(piece)) * time.Microsecond)
		var m int
		m, err = c.Conn.Write(piece)
		n, b = n+m, b[m:]
	}
	return n, err
}

// Every rank waits for a message that follows one whose transfer takes several times the patience:
// that is not a deadlock.
func TestDebugSlowMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := listenFor("")
		memoryWorld(t, 2, func(ctx context.Context, c *Comm) error {
			small, large := []int{0}, make([]byte, 6*debug.DefaultPatience.Microseconds()) // a microsecond for each byte
			if c.Rank() == 1 {                                                             // rank 0 decides, and gets the report while it sends
				in := Irecv(c, large, 0, 1)
				_, err := Recv(ctx, c, small, 0, 2) // follows the large message
				return errors.Join(err, Send(ctx, c, small, 0, 3), func() error { _, err := in.Wait(ctx); return err }())
			}
			sends := []*Request{Isend(c, large, 1, 1)}
			time.Sleep(debug.DefaultPatience) // until the link has sent a part of it
			sends = append(sends, Isend(c, small, 1, 2))
			_, err := Recv(ctx, c, small, 1, 3)
			_, sendErr := Waitall(ctx, sends...)
			return errors.Join(err, sendErr)
		}, func(c net.Conn) net.Conn { return trickling{c} }, WithDebug(out))
		if out.String() != "" {
			t.Errorf("%s", out)
		}
	})
}

// A rank that computes is not deadlocked.
func TestDebugNoDeadlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := listenFor("")
		memoryWorld(t, 2, func(ctx context.Context, c *Comm) error {
			if c.Rank() == 1 {
				waits := Ibarrier(c)                  // its messages wait, but the program does not
				time.Sleep(5 * debug.DefaultPatience) // computes
				return errors.Join(Send(ctx, c, []int{1}, 0, 3), second(waits.Wait(ctx)))
			}
			_, err := Recv(ctx, c, make([]int, 1), 1, 3)
			return errors.Join(err, second(Ibarrier(c).Wait(ctx)))
		}, nil, WithDebug(out))
		if out.String() != "" {
			t.Errorf("%s", out)
		}
	})
}

// A process that waits for work of its own, or has a partitioned transfer under way while it computes, may still go on.
func TestDebugNoDeadlockOfWork(t *testing.T) {
	trace := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		out := listenFor("")
		memoryWorld(t, 2, func(ctx context.Context, c *Comm) error {
			if c.Rank() == 1 {
				work, complete := c.world.GrequestStart("Work")
				time.AfterFunc(5*debug.DefaultPatience, func() { complete(Status{}, nil) })
				late := Irecv(c, make([]int, 1), 0, 4)
				i, _, err := Waitany(ctx, work, late)
				if i != 0 || err != nil {
					return fmt.Errorf("request %d, %w", i, err)
				}
				return receives(c, PartOf(make([]int, 1)), 1, 0, 5, func(r *PartitionedRecv) error {
					err := r.Start()
					parts := r.Request()
					time.Sleep(5 * debug.DefaultPatience) // computes
					return errors.Join(err, Send(ctx, c, []int{1}, 0, 3), second(late.Wait(ctx)), second(parts.Wait(ctx)))
				})
			}
			_, err := Recv(ctx, c, make([]int, 1), 1, 3)
			return errors.Join(err, Send(ctx, c, []int{1}, 1, 4), sends(c, PartOf([]int{1}), 1, 1, 5, func(s *PartitionedSend) error {
				return errors.Join(s.Start(), s.Pready(0), second(s.Wait(ctx)))
			}))
		}, nil, WithDebug(out), WithTrace(trace))
		if out.String() != "" {
			t.Errorf("%s", out)
		}
	})
}

// Errors name the rank, the peer, the tag, the communicator and the line.
func TestDebugErrors(t *testing.T) {
	TestWorld(t, 2, func(ctx context.Context, c *Comm) error {
		if c.Rank() == 0 {
			return Send(ctx, c, make([]int64, 5), 1, 7)
		}
		line := lineHere(1)
		_, err := Recv(ctx, c, make([]int64, 1), 0, 7)
		want := "mpilib: rank 1: receive from rank 0 of world, tag 7 (" + line + "): message is longer"
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			return fmt.Errorf("got %v, want %s", err, want)
		}
		line = lineHere(1)
		_, err = c.CartRank([]int{1})
		if err == nil || !strings.HasPrefix(err.Error(), "mpilib: CartRank on world, rank 1 at "+line+": ") {
			return fmt.Errorf("%v", err)
		}
		return nil
	}, WithDebug(listenFor("")))
}

// BenchmarkDebugOff measures a message to the own rank, which waits for nothing, so that the cost
// of the disabled debug mode would be visible.
func BenchmarkDebugOff(b *testing.B) { benchSelf(b) }

// BenchmarkDebugOn measures the same in the debug mode.
func BenchmarkDebugOn(b *testing.B) { benchSelf(b, WithDebug(listenFor(""))) }

func benchSelf(b *testing.B, opts ...Option) {
	b.ReportAllocs()
	TestWorld(b, 1, func(ctx context.Context, c *Comm) error {
		out, in := []int{1}, []int{0}
		for b.Loop() {
			if err := Send(ctx, c, out, 0, 0); err != nil {
				return err
			}
			if _, err := Recv(ctx, c, in, 0, 0); err != nil {
				return err
			}
		}
		return nil
	}, opts...)
}
