package stream

import (
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-grid/isthmus/internal/testload"
	"github.com/isthmus-grid/isthmus/wire"
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
			cut := rng.IntN(k + 1)
			var taken bool
			how := How(rng.IntN(int(hows)))
			var mark uint64
			if mark, taken, err = s.Append(how, all[:cut], all[cut:]); taken || err != nil {
				if mark == 0 {
					spoil(all)
				} else {
					owed = append(owed, debt{all, mark})
				}
				switch rng.IntN(3) { // else whoever writes next writes it, at the latest what follows the traffic
				case 0:
					s.Flush(rng.IntN(2) == 0)
				case 1:
					for s.Push() {
					}
				}
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
	s.Flush(true)
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

// nobody returns a stream without carriers.
func nobody(t *testing.T) *Stream {
	s := New(Options{Peer: "nobody", Lost: func(*Carrier, error, int) error { return nil }, Silent: func(bool) {}, Ended: func() {}})
	t.Cleanup(func() { s.Fail(io.EOF) })
	return s
}

// TestAppend: what is appended is whole and in order. It is refused where there is no room for all of it, and in the
// middle of a write that waits for room.
func TestAppend(t *testing.T) {
	s := nobody(t)
	if mark, ok, err := s.Append(Copy, []byte("head"), []byte("body")); mark != 0 || !ok || err != nil {
		t.Fatalf("%d, %v, %v", mark, ok, err)
	}
	if got := s.out.gather(nil, 0, 8); len(got) != 1 || string(got[0]) != "headbody" || s.send.End() != 8 {
		t.Errorf("%q, up to %d", got, s.send.End())
	}
	if _, ok, err := s.Append(Copy, nil, make([]byte, Window)); ok || err != nil || s.send.End() != 8 {
		t.Errorf("more than there is room for: %v, %v, up to %d", ok, err, s.send.End())
	}

	written := make(chan error, 1)
	go func() { // ends with the stream
		_, err := s.Write(make([]byte, Window))
		written <- err
	}()
	for waits := false; !waits; runtime.Gosched() {
		s.mu.Lock()
		if waits = s.wrote.pushing && s.roomNow() == 0; waits {
			s.allowed(0, 2*Window/wire.WindowUnit) // the writer is not woken
		}
		s.mu.Unlock()
	}
	if _, ok, err := s.Append(Copy, []byte("between"), nil); ok || err != nil {
		t.Errorf("in the middle of a write: %v, %v", ok, err)
	}
	s.mu.Lock()
	s.writable.Broadcast()
	s.mu.Unlock()
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	s.send.Up(1, 1, 0)
	s.send.Next(1, math.MaxInt) // the kernel has it
	s.mu.Unlock()
	if _, ok, err := s.Append(Copy, []byte("after"), nil); !ok || err != nil {
		t.Errorf("after the write: %v, %v", ok, err)
	}
	s.Fail(io.EOF)
	if _, ok, err := s.Append(Copy, nil, nil); ok || !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v, %v", ok, err)
	}
}

// TestAppendLends: of what is lent the stream refers to the body, if that is large, until it is reclaimed.
func TestAppendLends(t *testing.T) {
	s := nobody(t)
	body := make([]byte, minZeroCopy)
	for _, tc := range []struct {
		how  How
		body []byte
		mark uint64
	}{{Lend, body[1:], 0}, {Copy, body, 0}, {Fresh, nil, 0}, {Lend, body, 3*minZeroCopy + 2}} {
		want := tc.how != Fresh // which waits until the kernel has what is before it
		if mark, ok, err := s.Append(tc.how, []byte{1}, tc.body); mark != tc.mark && ok || ok != want || err != nil {
			t.Errorf("%+v: %d, %v, %v", tc.how, mark, ok, err)
		}
	}
	end := s.send.End()
	s.Append(Lend, nil, body)
	body[0] = 7
	head := func(off uint64) byte { return s.out.gather(nil, off, 1)[0][0] }
	s.Reclaim(end-minZeroCopy, end)
	body[0] = 8
	if a, b := head(end-minZeroCopy), head(end); a != 7 || b != 8 {
		t.Errorf("what was reclaimed is %d, and what is still lent %d", a, b)
	}
	s.Reclaim(end, end+minZeroCopy)
	if len(s.out.zeroCopy) > 0 {
		t.Error("something is still lent")
	}

	large, from := make([]byte, 2*pageSize), s.send.End()
	large[0] = 7
	s.Append(Lend, nil, large)
	end = s.send.End()
	next, ok := s.Reclaim(from, end)
	large[0], large[pageSize] = 1, 1
	if a, b := head(from), head(next); next != from+pageSize || !ok || a != 7 || b != 1 {
		t.Errorf("of a large one, what was reclaimed up to %d, %v, is %d, and what is still lent %d", next-from, ok, a, b)
	}
	if next, ok = s.Reclaim(next, end); next != end || !ok || len(s.out.zeroCopy) > 0 {
		t.Errorf("the rest is reclaimed up to %d, %v", next-from, ok)
	}
}

func unsentOf(s *Stream) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return unsentBytes(s)
}

// hopeful is a user that waits until Append takes something.
type hopeful struct {
	s     *Stream
	how   How
	n     int
	taken chan bool
}

func (u *hopeful) Writable() {
	_, ok, _ := u.s.Append(u.how, nil, make([]byte, u.n))
	u.taken <- ok
	u.s.Flush(true)
}

// TestWritable: Append refuses while too much is not with the kernel, and its user is called once it would not, by whoever
// writes, or reads that the peer has taken more.
func TestWritable(t *testing.T) {
	for name, tc := range map[string]struct {
		how    How
		n      int
		unsent int // see BoundUnsent
		most   int
	}{
		"small":                      {Copy, 10_000, 0, maxUnsent},
		"lent":                       {Lend, 1 << 20, 0, maxUnsent},
		"where little is to wait":    {Copy, 1000, 1 << 10, piece},
		"behind what the kernel has": {Fresh, 1, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.with("tcp")
				a, b := w.ends[0], w.ends[1]
				if tc.unsent > 0 {
					BoundUnsent(a.Stream, tc.unsent)
				}
				u := &hopeful{a.Stream, tc.how, tc.n, make(chan bool, 1)}
				a.SetUser(u)
				total := 0
				for { // nobody reads: the carrier is full before the window is
					_, ok, err := a.Append(tc.how, nil, make([]byte, tc.n))
					if err != nil {
						t.Fatal(err)
					}
					waits := unsentOf(a.Stream)
					if ok && waits >= tc.most+tc.n || !ok && waits < tc.most {
						t.Fatalf("Append returns %v, and %d bytes wait", ok, waits)
					}
					if !ok {
						break
					}
					total += tc.n
					a.Flush(true)
					synctest.Wait()
				}
				select {
				case <-u.taken:
					t.Fatal("the user is called while nobody reads")
				default:
				}
				if _, err := io.ReadFull(b, make([]byte, total)); err != nil {
					t.Fatal(err)
				}
				if !<-u.taken {
					t.Error("the user is called, and Append refuses")
				}
				if _, err := io.ReadFull(b, make([]byte, tc.n)); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// TestWritableOnRoom: a reader that hears that there is room in the window again calls the user.
func TestWritableOnRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.with("tcp")
		a, b := w.ends[0], w.ends[1]
		w.watch() // so that the peer's own goroutine reads
		u := &hopeful{a.Stream, Copy, piece, make(chan bool, 1)}
		a.SetUser(u)
		total := 0
		for ok := true; ok; total += piece {
			if _, ok, _ = a.Append(Copy, nil, make([]byte, piece)); !ok {
				break
			}
			a.Flush(true)
			time.Sleep(time.Second) // it arrives
		}
		if total != Window || unsentOf(a.Stream) > 0 {
			t.Fatalf("%d bytes are taken, of which %d wait", total, unsentOf(a.Stream))
		}
		go a.Read(make([]byte, 1)) // ends with the stream
		if _, err := io.ReadFull(b, make([]byte, total)); err != nil {
			t.Fatal(err)
		}
		if !<-u.taken {
			t.Error("the user is called, and Append refuses")
		}
	})
}

// TestFlushLeaves: what the socket does not take stays where it is, until another call or a tick of the watch has it written.
func TestFlushLeaves(t *testing.T) {
	for how, write := range map[string]func(s *Stream, w *world){
		"Push": func(s *Stream, _ *world) {
			for s.Push() {
			}
		},
		"Flush":   func(s *Stream, _ *world) { s.Flush(true) },
		"before":  func(s *Stream, _ *world) {},
		"Reclaim": func(s *Stream, _ *world) { s.Reclaim(0, math.MaxUint64) },
		"Watch":   func(_ *Stream, w *world) { w.pass(1) },
	} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.with("tcp")
				a, b := w.ends[0], w.ends[1]
				a.Flush(false)
				time.Sleep(time.Second) // the carriers' goroutines sleep, and what follows is no burst
				total, left := 0, false
				for !left {
					if _, ok, err := a.Append(Lend, nil, make([]byte, piece)); !ok || err != nil {
						t.Fatal(ok, err)
					}
					total += piece
					left = a.Flush(false)
					time.Sleep(time.Second / 1000) // no burst
				}
				if how == "before" { // the socket has none
					time.Sleep(time.Second)
					a.Flush(true)
				}
				all := make(chan error, 1)
				go func() { // from now on the socket has room
					_, err := io.ReadFull(b, make([]byte, total))
					all <- err
				}()
				time.Sleep(time.Second)
				select {
				case err := <-all:
					if how != "before" {
						t.Fatalf("what was left is written: %v", err)
					}
					return
				default:
				}
				write(a.Stream, w)
				if err := <-all; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestFlushGathers: large writes in close succession are written together, up to a size, unless something small is beside them;
// the last of them by another call, or by a tick of the watch.
func TestFlushGathers(t *testing.T) {
	for how, write := range map[string]func(s *Stream, w *world){
		"Push":  func(s *Stream, _ *world) { s.Push() },
		"Flush": func(s *Stream, _ *world) { s.Flush(true) },
		"Watch": func(_ *Stream, w *world) { w.pass(1) },
		"beside a small one": func(s *Stream, _ *world) {
			s.Append(Copy, []byte{1}, nil)
			s.Append(Lend, nil, make([]byte, piece))
			s.Flush(false)
		},
		"more": func(s *Stream, _ *world) {
			for range maxUnsent/piece - 1 {
				s.Append(Lend, nil, make([]byte, piece))
				s.Flush(false)
			}
		},
	} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.with("tcp")
				a, b := w.ends[0], w.ends[1]
				go io.Copy(io.Discard, b) // ends with the stream
				a.Flush(false)
				time.Sleep(time.Second) // what follows is no burst
				for _, want := range []int{0, piece} {
					if _, ok, err := a.Append(Lend, nil, make([]byte, piece)); !ok || err != nil {
						t.Fatal(ok, err)
					}
					left := a.Flush(false)
					if n := unsentOf(a.Stream); n != want || left != (want > 0) {
						t.Fatalf("%d bytes are left, want %d: %v", n, want, left)
					}
				}
				write(a.Stream, w)
				time.Sleep(time.Second)
				if n := unsentOf(a.Stream); how != "more" && n > 0 || n >= maxUnsent {
					t.Errorf("%d bytes are left", n)
				}
			})
		})
	}
}

// told is a user that notes that it was called.
type told chan struct{}

func (u told) Writable() { u <- struct{}{} }

// TestReclaimWhileWritten: Reclaim refuses what a carrier has begun to write, and the user is called once none does.
func TestReclaimWhileWritten(t *testing.T) {
	for how, stop := range map[string]func(w *world, total int){
		"all is written": func(w *world, total int) { io.ReadFull(w.ends[1], make([]byte, total)) },
		"the carrier is lost while it writes": func(w *world, _ int) {
			synctest.Wait()
			w.ends[0].Drop(w.ends[0].lead, io.EOF)
		},
		"the carrier is lost before it writes on": func(w *world, _ int) {
			s := w.ends[0].Stream
			s.mu.Lock()
			defer s.mu.Unlock()
			s.failed(s.lead, io.EOF)
		},
		"the stream fails": func(w *world, _ int) { w.ends[0].Fail(io.EOF) },
	} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.lasts()
				w.with("tcp")
				a := w.ends[0].Stream
				u := make(told, 10)
				a.SetUser(u)
				a.Flush(false)
				time.Sleep(time.Second) // what follows is no burst
				total := 0
				for left := false; !left; total += piece { // nobody reads
					a.Append(Lend, nil, make([]byte, piece))
					left = a.Flush(false)
					time.Sleep(time.Millisecond)
				}
				from := uint64(total - piece)
				if _, ok := a.Reclaim(from, uint64(total)); ok {
					t.Fatal("what is begun is reclaimed")
				}
				stop(w, total)
				<-u
				if _, ok := a.Reclaim(from, uint64(total)); !ok {
					t.Error("what is not being written is not reclaimed")
				}
			})
		})
	}
}

// eager is a user that reclaims again when it is called.
type eager struct {
	s     *Stream
	calls atomic.Int64
}

func (u *eager) Writable() {
	u.calls.Add(1)
	u.s.Reclaim(0, math.MaxUint64)
}

// TestReclaimWithStandby: while one carrier is writing what is to be reclaimed, the others are not asked again and again.
func TestReclaimWithStandby(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.with("tcp")
		w.with("tcp") // stands by
		a := w.ends[0].Stream
		u := &eager{s: a}
		a.SetUser(u)
		a.Append(Lend, nil, make([]byte, 8<<20))
		go func() { // ends with the stream: nobody reads
			for a.Push() {
			}
		}()
		synctest.Wait()
		if _, ok := a.Reclaim(0, math.MaxUint64); ok {
			t.Fatal("what is being written is reclaimed")
		}
		before := u.calls.Load()
		for range 1000 {
			runtime.Gosched()
		}
		if n := u.calls.Load() - before; n > 2 {
			t.Errorf("the user is called %d times while nothing is written", n)
		}
	})
}

// narrow is a connection that takes takes bytes without blocking, and calls then before it does.
type narrow struct {
	Conn
	takes int
	then  func()
}

func (c narrow) TryWriteVec(bufs ...[]byte) (int, error) {
	c.then()
	return c.WriteVec(bufs[0][:c.takes])
}

// counted counts calls of WriteVec.
type counted struct {
	narrow
	calls *atomic.Int32
}

func (c counted) WriteVec(bufs ...[]byte) (int, error) {
	c.calls.Add(1)
	return c.Conn.WriteVec(bufs...)
}

// more is a user that appends a piece each time that there is room.
type more struct{ s *Stream }

func (u more) Writable() {
	u.s.Append(Lend, nil, make([]byte, piece))
	u.s.Flush(true)
}

// TestPusherIsAlone: what comes while a caller of Push writes is left to it.
func TestPusherIsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.ends[0].Stream, w.ends[1].Stream
		r := w.road("tcp")
		var calls atomic.Int32
		r.ends[0] = counted{narrow{ConnOf(r.ends[0]), 1, func() {}}, &calls}
		w.attach(r)
		go io.Copy(io.Discard, b)
		synctest.Wait()
		a.SetUser(more{a})
		for ok := true; ok; {
			_, ok, _ = a.Append(Lend, nil, make([]byte, piece))
		}
		calls.Store(0)
		if !a.Push() {
			t.Error("there is no more to write")
		}
		a.Flush(false)
		synctest.Wait()
		if n := calls.Load(); n != 1 {
			t.Errorf("%d writes, of which the caller made one", n)
		}
	})
}

// TestFlushLeavesNothingToNobody: what Flush leaves is written at once if the connection took nothing, as one that is sealed does of
// what is large, if Reclaim has been refused meanwhile, or if another carrier is used from then on.
func TestFlushLeavesNothingToNobody(t *testing.T) {
	for name, tc := range map[string]struct {
		takes int
		then  func(s *Stream, other *Carrier)
		left  bool
	}{
		"nothing more": {1, func(*Stream, *Carrier) {}, true},
		"none taken":   {0, func(*Stream, *Carrier) {}, false},
		"Reclaim":      {1, func(s *Stream, _ *Carrier) { s.Reclaim(0, math.MaxUint64) }, false},
		"Use":          {1, func(s *Stream, other *Carrier) { s.Use(other, 1) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				a, b := w.ends[0].Stream, w.ends[1].Stream
				r, other := w.road("tcp"), w.road("tcp")
				r.ends[0] = narrow{ConnOf(r.ends[0]), tc.takes, func() {
					tc.then(a, other.carriers[0])
					synctest.Wait() // the carriers' goroutines have found that somebody writes
				}}
				w.attach(r)
				w.attach(other)
				synctest.Wait()
				a.Flush(false)
				time.Sleep(time.Second) // what follows is no burst
				a.Append(Lend, nil, make([]byte, piece))
				a.Flush(false)
				all := make(chan error, 1)
				go func() {
					_, err := io.ReadFull(b, make([]byte, piece))
					all <- err
				}()
				time.Sleep(time.Second) // it arrives
				select {
				case err := <-all:
					if err != nil || tc.left {
						t.Errorf("what Flush has left is written: %v", err)
					}
				default:
					if !tc.left {
						t.Error("what Flush has left is not written")
					}
				}
			})
		})
	}
}
