package shm

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// sharedBuffers returns the ends of a shared buffer for n processes, all of them this one.
func sharedBuffers(t *testing.T, n int) []*SharedBuffer {
	t.Helper()
	first, err := CreateSharedBuffer(n)
	if err != nil {
		t.Fatal(err)
	}
	others := make([]CPUs, n-1)
	all := []*SharedBuffer{first.SharedBuffer(0, n, others)}
	for i := 1; i < n; i++ {
		s, err := OpenSharedBuffer(first.Descriptor(), n)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s.SharedBuffer(i, n, others))
	}
	first.CloseFile()
	for _, b := range all {
		b.single = true
		t.Cleanup(func() { b.Close() })
	}
	return all
}

func fine() error { return nil }

// said returns the data that a process posts for a stamp.
func said(process int, stamp uint64) []byte {
	r := rand.New(rand.NewPCG(uint64(process), stamp))
	n := []int{0, 1, 8, postedShort, postedShort + 1, 3000, SharedBufferPiece}[r.IntN(7)]
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(r.Uint32())
	}
	return p
}

// TestSharedBuffer: every process reads what was posted for the step, whichever is ahead, and
// whether many or few read.
func TestSharedBuffer(t *testing.T) {
	for _, n := range []int{2, 3, 5} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var all sync.WaitGroup
		for me, b := range sharedBuffers(t, n) {
			all.Go(func() {
				for stamp := uint64(1); stamp < 400; stamp += 1 + stamp%3 {
					if err := b.Post(ctx, stamp, fine, said(me, stamp)); err != nil {
						t.Errorf("process %d, stamp %d: %v", me, stamp, err)
						return
					}
					step := rand.New(rand.NewPCG(stamp, 0)) // the same for all
					reads, root := step.IntN(3), step.IntN(n)
					for r := range n {
						if reads == 0 || reads == 1 && r != root {
							continue
						}
						got, err := b.Read(ctx, r, stamp, fine)
						if err != nil || !bytes.Equal(got, said(r, stamp)) {
							t.Errorf("process %d reads %d bytes of %d for stamp %d, %v", me, len(got), r, stamp, err)
							return
						}
					}
				}
			})
		}
		all.Wait()
	}
}

// TestSharedBufferHoldsBack: a process that is ahead does not overwrite what others have yet to
// read.
func TestSharedBufferHoldsBack(t *testing.T) {
	b := sharedBuffers(t, 2)
	ctx, cancel := context.WithCancel(t.Context())
	stop := errors.New("stop")
	held := func() error { return stop }
	long := make([]byte, postedShort+1)
	stamp := uint64(1)
	for ; stamp <= sharedBufferPieces; stamp++ {
		if err := b[0].Post(ctx, stamp, fine, long); err != nil {
			t.Fatal(err)
		}
	}
	if err := b[0].Post(ctx, stamp, held, long); !errors.Is(err, stop) {
		t.Fatalf("posted over a piece that nobody has read: %v", err)
	}
	for ; stamp <= sharedBufferCells; stamp++ {
		if err := b[0].Post(ctx, stamp, fine, []byte{byte(stamp)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := b[0].Post(ctx, stamp, held, nil); !errors.Is(err, stop) {
		t.Fatalf("posted over a cell that nobody has read: %v", err)
	}
	for seen := uint64(1); seen <= 2; seen++ {
		b[1].Post(ctx, seen, fine, nil)
		if got, err := b[1].Read(ctx, 0, seen, fine); err != nil || !bytes.Equal(got, long) {
			t.Fatalf("stamp %d: %d bytes, %v", seen, len(got), err)
		}
	}
	if err := b[0].Post(ctx, stamp, fine, nil); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := b[0].Post(ctx, stamp+1, fine, nil); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
}

// TestSharedBufferPassed: a process that waits for a step that another has left out gets an error,
// and reads that one's post of a later step.
func TestSharedBufferPassed(t *testing.T) {
	b := sharedBuffers(t, 2)
	b[0].Post(t.Context(), 1, fine, nil)
	b[1].Post(t.Context(), 2, fine, said(1, 2))
	if _, err := b[0].Read(t.Context(), 1, 1, fine); !errors.Is(err, ErrPassed) {
		t.Fatalf("got %v", err)
	}
	b[0].Post(t.Context(), 2, fine, nil)
	if got, err := b[0].Read(t.Context(), 1, 2, fine); err != nil || !bytes.Equal(got, said(1, 2)) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
}

// TestSharedBufferSleeps: a post wakes a sleeping process, long before it would wake by itself.
func TestSharedBufferSleeps(t *testing.T) {
	b := sharedBuffers(t, 2)
	for stamp := uint64(1); stamp <= 3; stamp++ {
		b[0].Post(t.Context(), stamp, fine, nil)
		asked := make(chan struct{})
		var once sync.Once
		var read sync.WaitGroup
		read.Go(func() {
			if _, err := b[0].Read(t.Context(), 1, stamp, func() error { once.Do(func() { close(asked) }); return nil }); err != nil {
				t.Error(err)
			}
		})
		<-asked // it is about to sleep
		b[1].Post(t.Context(), stamp, fine, nil)
		read.Wait()
	}
}

// TestSharedBufferOffers: a descriptor of anything but a shared buffer for that many processes is
// refused.
func TestSharedBufferOffers(t *testing.T) {
	s, err := CreateSharedBuffer(2)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := OpenSharedBuffer(s.Descriptor(), 3); err == nil {
		t.Error("a shared buffer for 2 was opened as one for 3")
	}
	if _, err := Open(s.Descriptor()); err == nil {
		t.Error("a shared buffer was opened as rings")
	}
	for _, n := range []int{-1, 0, 1, MaxSharedBufferRanks + 1} {
		if _, err := CreateSharedBuffer(n); err == nil {
			t.Errorf("a shared buffer for %d", n)
		}
	}
	b := s.SharedBuffer(0, 2, nil)
	b.all[1].posts[0].size = 1 << 30
	b.all[1].posts[0].stamp.Store(1)
	b.Post(t.Context(), 1, fine, nil)
	if _, err := b.Read(t.Context(), 1, 1, fine); !errors.Is(err, ErrCorrupt) {
		t.Errorf("got %v", err)
	}
}

// BenchmarkSharedBuffer: a step of two processes that both read.
func BenchmarkSharedBuffer(b *testing.B) {
	first, err := CreateSharedBuffer(2)
	if err != nil {
		b.Fatal(err)
	}
	second, err := OpenSharedBuffer(first.Descriptor(), 2)
	if err != nil {
		b.Fatal(err)
	}
	var both sync.WaitGroup
	for me, s := range []*Segment{first, second} {
		end := s.SharedBuffer(me, 2, nil)
		defer end.Close()
		both.Go(func() {
			for i := range b.N {
				end.Post(b.Context(), uint64(i+1), fine, nil)
				end.Read(b.Context(), 1-me, uint64(i+1), fine)
			}
		})
	}
	both.Wait()
}
