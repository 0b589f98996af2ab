package stream

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-grid/isthmus/internal/testload"
)

// size returns a random size of any order of magnitude up to 3 MiB.
func size(rng *rand.Rand) int { return 1 + rng.IntN(min(3<<20, 1<<(1+rng.IntN(23)))) }

// send writes n bytes of a direction with all the write methods, and overwrites the buffers as soon
// as they are its own again.
func send(s *Stream, direction, n int, rng *rand.Rand) error {
	type debt struct {
		buf  []byte
		mark uint64
	}
	var owed []debt
	settle := func() error {
		for _, d := range owed {
			if err := s.Await(d.mark); err != nil {
				return err
			}
			spoil(d.buf)
		}
		owed = nil
		return nil
	}
	off := 0
	for off < n {
		k := min(size(rng), n-off)
		var bufs [][]byte
		all := make([]byte, k)
		want(all, direction, uint64(off))
		for rest := all; len(rest) > 0; {
			cut := len(rest)
			if rng.IntN(3) == 0 {
				cut = min(cut, size(rng))
			}
			bufs = append(bufs, rest[:cut:cut])
			rest = rest[cut:]
		}
		var err error
		switch rng.IntN(5) {
		case 4:
			var taken bool
			if taken, err = s.Post(all); taken || err != nil {
				spoil(all)
				break
			}
			fallthrough
		case 0:
			var wrote int
			if wrote, err = s.Write(all); err == nil && wrote != k {
				err = fmt.Errorf("wrote %d of %d bytes without an error", wrote, k)
			}
			spoil(all)
		case 1, 2:
			var wrote int64
			if wrote, err = s.WriteBuffers(bufs); err == nil && wrote != int64(k) {
				err = fmt.Errorf("wrote %d of %d bytes without an error", wrote, k)
			}
			spoil(all)
		case 3:
			var mark uint64
			if _, mark, err = s.Lend(bufs); err == nil && mark != uint64(off+k) {
				err = fmt.Errorf("the mark is %d and not %d", mark, off+k)
			}
			if owed = append(owed, debt{all, mark}); err == nil && len(owed) > rng.IntN(8) {
				err = settle()
			}
		}
		if err != nil {
			return fmt.Errorf("sending, %d of %d bytes done: %w", off, n, err)
		}
		off += k
	}
	if err := settle(); err != nil {
		return fmt.Errorf("awaiting: %w", err)
	}
	return nil
}

// receive reads n bytes of a direction by reads of all sizes, some with a deadline. With n < 0 it
// reads to the end and returns how many arrived.
func receive(s *Stream, direction, n int, rng *rand.Rand) (int, error) {
	buf := make([]byte, 3<<20)
	off := 0
	for n < 0 || off < n {
		p := buf[:size(rng)]
		if n >= 0 {
			p = p[:min(len(p), n-off)]
		}
		late := rng.IntN(20) == 0
		if late {
			s.SetReadDeadline(time.Now().Add(time.Duration(rng.IntN(2000)) * time.Microsecond))
		}
		k, err := s.Read(p)
		if late {
			s.SetReadDeadline(time.Time{})
		}
		if fault := wrong(p[:k], direction, uint64(off)); fault != "" {
			return off, errors.New(fault)
		}
		off += k
		switch {
		case err == io.EOF && n < 0:
			return off, nil
		case late && errors.Is(err, os.ErrDeadlineExceeded):
		case err != nil:
			return off, fmt.Errorf("receiving, %d of %d bytes done: %w", off, n, err)
		case k == 0:
			return off, errors.New("a read of nothing")
		}
	}
	return off, nil
}

// both makes each end send n bytes, end its direction, and read the other's to the end.
func (w *world) both(n int, seed uint64) {
	w.t.Helper()
	var all sync.WaitGroup
	for i := range w.ends {
		all.Go(func() {
			s := w.ends[i].Stream
			err := send(s, i, n, rand.New(rand.NewPCG(seed, uint64(i))))
			if err == nil {
				err = s.CloseWrite()
			}
			if err != nil {
				w.t.Errorf("end %d: %v", i, err)
				s.Fail(err)
			}
		})
		all.Go(func() {
			s := w.ends[1-i].Stream
			got, err := receive(s, i, -1, rand.New(rand.NewPCG(seed, 10+uint64(i))))
			if err == nil && got != n {
				err = fmt.Errorf("the end came behind %d of %d bytes", got, n)
			}
			if err != nil {
				w.t.Errorf("end %d: %v", 1-i, err)
				s.Fail(err)
			}
		})
	}
	all.Wait()
}

// TestEveryKind: one carrier of each kind brings every byte, over sockets.
func TestEveryKind(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			w := newSocketWorld(t)
			w.watch()
			w.with(kind)
			w.both(4<<20, 1)
			for _, e := range w.ends {
				<-e.over // both directions have ended
			}
		})
	}
}

// TestSocketsShare: over sockets that share what is sent, of which one dies, every byte arrives once and in
// order.
func TestSocketsShare(t *testing.T) {
	w := newSocketWorld(t)
	w.watch()
	var all []*road
	for _, kind := range []string{"tcp", "unix", "middle"} {
		r := w.with(kind)
		for i, e := range w.ends {
			e.Use(r.carriers[i], 1)
		}
		all = append(all, r)
	}
	w.busy.Go(func() { w.mend() }) // an end may be over before the other has its last acknowledgement
	w.busy.Go(func() {
		for w.ends[0].sent() < 1<<20 && !w.ends[0].Over() {
			time.Sleep(time.Millisecond)
		}
		all[0].cut()
	})
	w.both(4<<20, 1)
	for _, e := range w.ends {
		<-e.over
	}
}

// TestUnderFire: carriers are attached, cut, dropped, silenced, and weighted while both ends send.
// Every byte arrives once and in order.
func TestUnderFire(t *testing.T) {
	seeds := uint64(3)
	if testload.Full() {
		seeds = 8
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.watch()
				w.with("tcp")
				done := make(chan struct{})
				var firing sync.WaitGroup
				firing.Go(func() { w.fire(done, rand.New(rand.NewPCG(seed, 99))) })
				w.both(8<<20, seed)
				close(done)
				firing.Wait()
				for i, e := range w.ends {
					e.lostMu.Lock()
					if len(e.lost) == 0 {
						t.Errorf("end %d lost no carrier", i)
					}
					e.lostMu.Unlock()
				}
			})
		})
	}
}

// fire does one thing after the other to the carriers.
func (w *world) fire(done chan struct{}, rng *rand.Rand) {
	var up []*road
	for {
		pause := time.NewTimer(time.Duration(rng.IntN(8)) * time.Millisecond)
		select {
		case <-done:
			pause.Stop()
			return
		case <-pause.C:
		case <-w.ends[0].want:
			up = append(up, w.fresh(rng))
		case <-w.ends[1].want:
			up = append(up, w.fresh(rng))
		}
		if len(up) == 0 {
			up = append(up, w.fresh(rng))
			continue
		}
		i := rng.IntN(len(up))
		r := up[i]
		switch rng.IntN(6) {
		case 0:
			if len(up) < 4 {
				up = append(up, w.fresh(rng))
			}
			continue
		case 1, 2:
			if c := r.carriers[rng.IntN(2)]; c != nil {
				w.ends[c.side(w)].Use(c, uint32(rng.IntN(4)))
			}
			continue
		case 3:
			r.cut()
		case 4:
			if c := r.carriers[rng.IntN(2)]; c != nil {
				w.ends[c.side(w)].Drop(c, errors.New("dropped"))
			}
		case 5:
			if r.mute == nil {
				continue
			}
			r.mute()
		}
		up = append(up[:i], up[i+1:]...)
	}
}

func (c *Carrier) side(w *world) int {
	if c.s == w.ends[0].Stream {
		return 0
	}
	return 1
}

func (w *world) fresh(rng *rand.Rand) *road {
	r := w.road(kinds[rng.IntN(len(kinds))])
	w.attach(r)
	return r
}

func random(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }
