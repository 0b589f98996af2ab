package stream

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-grid/isthmus/internal/testkit"
)

// ticks waits until an end was watched n more times.
func (w *world) ticks(n int64) {
	e := w.ends[0]
	from := e.ticks.Load()
	for e.ticks.Load() < from+n {
		time.Sleep(Tick / 4)
	}
}

// sent returns how many bytes an end has given to the system on all its carriers.
func (e *end) sent() (n uint64) {
	for _, c := range e.Carriers() {
		n += c.Sent
	}
	return n
}

func (e *end) losses() int {
	e.lostMu.Lock()
	defer e.lostMu.Unlock()
	return len(e.lost)
}

// TestNobodyReads: an end that does not read accepts a window, and no more; the other direction and
// the carriers are not affected.
func TestNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.watch()
		w.with("tcp")
		a, b := w.ends[0], w.ends[1]
		buf := make([]byte, Window+1<<20)
		want(buf, 0, 0)
		n, err := 0, error(nil)
		for end := time.Now().Add(30 * time.Second); n < Window && time.Now().Before(end); {
			a.SetWriteDeadline(time.Now().Add(time.Second))
			var k int
			k, err = a.Write(buf[n:])
			n += k
		}
		if n != Window || !isTimeout(err) {
			t.Fatalf("an end that reads nothing took %d bytes: %v", n, err)
		}
		w.ticks(60) // far longer than the time after which an unanswered question counts
		var other sync.WaitGroup
		other.Go(func() {
			if err := send(b.Stream, 1, Window+1<<20, random(1)); err != nil {
				t.Error(err)
			}
		})
		if _, err := receive(a.Stream, 1, Window+1<<20, random(2)); err != nil {
			t.Error(err)
		}
		other.Wait()
		if a.losses()+b.losses() > 0 {
			t.Errorf("carriers died: %v, %v", a.lost, b.lost)
		}
		if _, err := receive(b.Stream, 0, n, random(3)); err != nil {
			t.Error(err)
		}
	})
}

func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}

// TestWaitingIsQuiet: an end that waits for an acknowledgement or for room, while the peer takes
// nothing, asks for it occasionally, and not as often as it can.
func TestWaitingIsQuiet(t *testing.T) {
	for name, wait := range map[string]func(*Stream) error{
		"Await": func(s *Stream) error {
			_, mark, err := s.Lend([][]byte{make([]byte, 1<<20)})
			if err != nil {
				return err
			}
			return s.Await(mark)
		},
		"room": func(s *Stream) error {
			_, err := s.Write(make([]byte, Window+1))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.watch()
				w.with("tcp")
				a, b := w.ends[0], w.ends[1]
				var waiting sync.WaitGroup
				waiting.Go(func() {
					if err := wait(a.Stream); err == nil {
						t.Error("the peer has read nothing, and nobody waited for it")
					}
				})
				testkit.Until(t, "all to be sent", func() bool {
					a.mu.Lock()
					defer a.mu.Unlock()
					return a.send.End() > 0 && a.send.Sent() == a.send.End()
				})
				w.ticks(5)
				before := a.sent() + b.sent()
				w.ticks(20)
				if n := a.sent() + b.sent() - before; n > 100*headerLen {
					t.Errorf("%d bytes were said in a second of waiting", n)
				}
				a.SetWriteDeadline(time.Unix(1, 0))
				waiting.Wait()
			})
		})
	}
}

// TestTwoReaders: where two calls of Read are pending, each gets data, without help from the watch.
func TestTwoReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.with("tcp")
		a, b := w.ends[0], w.ends[1]
		for range 200 {
			var readers sync.WaitGroup
			for range 2 {
				readers.Go(func() {
					if n, err := b.Read(make([]byte, 1)); n != 1 || err != nil {
						t.Errorf("%d, %v", n, err)
					}
				})
			}
			testkit.Until(t, "both readers", func() bool {
				b.mu.Lock()
				defer b.mu.Unlock()
				return b.readers == 2
			})
			for range 2 {
				if _, err := a.Write([]byte{1}); err != nil {
					t.Fatal(err)
				}
			}
			readers.Wait()
		}
	})
}

// slow is a connection whose writes take until they are released.
type slow struct {
	net.Conn
	before  bool        // they are held before anything is written, otherwise after
	holds   atomic.Bool // or has
	entered chan [][]byte
	release chan struct{}
	carrier *Carrier
}

func newSlow(c net.Conn, before bool) *slow {
	return &slow{Conn: c, before: before, entered: make(chan [][]byte, 1), release: make(chan struct{})}
}

func (c *slow) ReadVec(bufs ...[]byte) (int, error) { return plain{c.Conn}.ReadVec(bufs...) }

func (c *slow) WriteVec(bufs ...[]byte) (n int, err error) {
	if !c.before {
		n, err = plain{c.Conn}.WriteVec(bufs...)
	}
	if len(bufs) > 1 && len(bufs[1]) > headerLen && c.holds.CompareAndSwap(false, true) {
		c.entered <- bufs
		<-c.release
	}
	if c.before {
		n, err = plain{c.Conn}.WriteVec(bufs...)
	}
	return n, err
}

// awaitByReading is Await for an end that reads meanwhile, and to which nothing is sent.
func awaitByReading(s *Stream, mark uint64) error {
	for !s.Released(mark) {
		if n, err := s.Read(make([]byte, 1)); n != 0 || err != nil {
			return fmt.Errorf("read %d bytes, %w", n, err)
		}
	}
	return nil
}

// TestReleasedWhileReading: a Read that sleeps returns when what was to be released is, on whichever carrier that comes, and
// not before.
func TestReleasedWhileReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.with("tcp") // which the Read reads
		other := w.with("tcp").carriers[0]
		a := w.ends[0]
		_, mark, err := a.Lend([][]byte{make([]byte, minZeroCopy)})
		if err != nil {
			t.Fatal(err)
		}
		released := make(chan error, 1)
		go func() { released <- awaitByReading(a.Stream, mark) }()
		hears := func(off uint64) {
			t.Helper()
			synctest.Wait()
			a.mu.Lock()
			defer a.mu.Unlock()
			if err := a.hearAck(off, 0, other); err != nil {
				t.Error(err)
			}
		}
		hears(mark - 1)
		synctest.Wait()
		select {
		case err := <-released:
			t.Fatalf("released before everything is acknowledged: %v", err)
		default:
		}
		hears(mark)
		if err := <-released; err != nil {
			t.Error(err)
		}
	})
}

// TestDroppedWhileWriting: bytes are not returned to their owner before a dropped carrier has
// stopped writing them.
func TestDroppedWhileWriting(t *testing.T) {
	for _, how := range []string{"Write", "Await", "Released"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				held, other := w.slow(true), w.slow(true)
				a, b := w.ends[0], w.ends[1]
				buf := make([]byte, 1<<20)
				want(buf, 0, 0)
				var mine atomic.Bool
				var writing sync.WaitGroup
				writing.Go(func() {
					var err error
					if how == "Write" {
						_, err = a.Write(buf)
					} else {
						var mark uint64
						if _, mark, err = a.Lend([][]byte{buf}); err == nil && how == "Await" {
							err = a.Await(mark)
						} else if err == nil {
							err = awaitByReading(a.Stream, mark)
						}
					}
					if err != nil {
						t.Error(err)
					}
					mine.Store(true)
					spoil(buf)
				})
				bufs := <-held.entered
				<-other.entered
				a.Drop(held.carrier, errors.New("dropped"))
				close(other.release)
				if _, err := receive(b.Stream, 0, len(buf), random(1)); err != nil {
					t.Error(err)
				}
				testkit.Until(t, "the acknowledgement", func() bool {
					w.tick()
					return a.Idle()
				})
				if mine.Load() && how != "Write" { // Write may have copied it
					t.Error("the buffer was given back while a carrier was writing it")
				}
				copied := append([]byte(nil), bufs[1]...)
				if i := bytes.IndexByte(copied, 0xee); i >= 0 {
					t.Errorf("byte %d that the carrier writes was overwritten", i)
				}
				close(held.release)
				writing.Wait()
			})
		})
	}
}

// slow attaches a carrier of weight 1 that will hold the first data.
func (w *world) slow(before bool) *slow {
	r := w.road("unix")
	c := newSlow(r.ends[0], before)
	r.ends[0] = c
	if !w.attach(r) {
		w.t.Fatal("the streams take no carrier")
	}
	c.carrier = r.carriers[0]
	w.ends[0].Use(c.carrier, 1) // with two of them, the carriers' goroutines write
	return c
}

// TestSlowWriterOfManyBytes: pages are not reused for other bytes while a carrier has not reported
// that it has written them, however much is sent meanwhile.
func TestSlowWriterOfManyBytes(t *testing.T) {
	for _, dropped := range []bool{false, true} {
		t.Run(fmt.Sprint("dropped=", dropped), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.watch()
				held := w.slow(false)
				other := w.with("unix")
				a, b := w.ends[0], w.ends[1]
				a.Use(other.carriers[0], 1)
				const n = 2 * Window
				var both sync.WaitGroup
				both.Go(func() {
					off := uint64(0)
					for buf := make([]byte, 4<<10); off < n; off += uint64(len(buf)) {
						want(buf, 0, off)
						if _, err := a.Write(buf); err != nil {
							t.Error(err)
							return
						}
					}
				})
				both.Go(func() {
					<-held.entered
					if dropped {
						a.Drop(held.carrier, errors.New("dropped"))
					}
					if _, err := receive(b.Stream, 0, Window, random(1)); err != nil {
						t.Error(err)
					}
					w.ticks(10) // in which as much is written as possible
					close(held.release)
					other.cut() // all unacknowledged data is needed again
					w.with("unix")
					rest := make([]byte, 1<<20)
					for off := uint64(Window); off < n; off += uint64(len(rest)) {
						if _, err := io.ReadFull(b, rest); err != nil {
							t.Error(err)
						}
						if fault := wrong(rest, 0, off); fault != "" {
							t.Error(fault)
							return
						}
					}
				})
				both.Wait()
			})
		})
	}
}

// questions returns how many questions an end has sent on its first carrier, and whether each was
// answered.
func (e *end) questions() (n uint64, answered bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	q := &e.carriers[0].asked
	return q.number, q.since == 0
}

// TestReceiverAsksOnce: an end to which data arrived, and then no more, asks once whether that was
// all, and not again until more has arrived.
func TestReceiverAsksOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.with("tcp")
		a, b := w.ends[0], w.ends[1]
		for want := range uint64(3) {
			if want > 0 { // the first time nothing has arrived
				if _, err := a.Write([]byte("a word")); err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(b, make([]byte, 6)); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 {
				w.pass(int(askLoaded/Tick) + 1)
				testkit.Until(t, "a question and its answer", func() bool { // later if other frames have arrived meanwhile
					n, answered := b.questions()
					if n < want {
						w.pass(1)
					}
					return n >= want && answered
				})
				if n, _ := b.questions(); n != want {
					t.Fatalf("%d questions after %d words", n, want)
				}
			}
			w.pass(int(time.Second / Tick))
			if n, _ := b.questions(); n != want {
				t.Fatalf("%d questions after %d words and a second", n, want)
			}
		}
		if n, _ := a.questions(); n > 2 { // while a frame was not acknowledged
			t.Errorf("the end that wrote asked %d times", n)
		}
	})
}

// TestReceiverNoticesSilence: where data arrived until the path and the standby died, the receiver
// requests another carrier as soon as the sender does.
func TestReceiverNoticesSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		used, spare := w.with("middle"), w.with("middle")
		for i, e := range w.ends {
			e.Use(used.carriers[i], 1)
			e.Use(spare.carriers[i], 0)
		}
		if _, err := w.ends[0].Write([]byte("a word")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(w.ends[1], make([]byte, 6)); err != nil {
			t.Fatal(err)
		}
		used.mute()
		spare.mute()
		w.pass(int((askLoaded+doubtAfter)/Tick) + 3)
		select {
		case <-w.ends[1].want:
		default:
			t.Errorf("nothing is called for, with carriers %+v", w.ends[1].Carriers())
		}
	})
}
