package proxy

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/testkit"
	"github.com/isthmus-grid/isthmus/internal/testload"
	"github.com/isthmus-grid/isthmus/wire"
)

// The ends arrive in either order, and what the first sends before the second has arrived reaches
// it.
func TestPairsInEitherOrder(t *testing.T) {
	for _, first := range []int{0, 1} {
		t.Run(fmt.Sprintf("end %d first", first), func(t *testing.T) {
			r := start(t, Settings{})
			pair := r.tickets()
			early := r.dial(append(wire.Append(nil, pair[first]), "early"...))
			r.until("the first end to wait", func(st Status) bool { return st.Waiting == 1 })
			late := r.show(pair[1-first])
			got := make([]byte, 5)
			if _, err := io.ReadFull(late, got); err != nil || string(got) != "early" {
				t.Fatalf("%q, %v", got, err)
			}
			echoes(t, early, late)
			if st := r.Status(); st.Links != 1 || st.Waiting != 0 {
				t.Errorf("%+v", st)
			}
		})
	}
}

func TestSecondEndNeverComes(t *testing.T) {
	r := start(t, Settings{PairTimeout: 50 * time.Millisecond})
	for end, missing := range []string{"rank 5", "rank 3"} {
		no := testkit.Refused(r.t, r.show(r.tickets()[end]))
		want := "waited 50ms for " + missing + " of job " + string(job) + "; it did not connect"
		if no.Code != wire.CodeTimeout || no.By != "proxy p1" || no.Text != want {
			t.Errorf("end %d: %+v, want %q", end, no, want)
		}
	}
	r.until("both to be counted", func(st Status) bool { return st.Waiting == 0 && st.Refused[NoPartner] == 2 })
}

func TestHalfCloseAndAccounting(t *testing.T) {
	r := start(t, Settings{})
	asker, target := r.link()
	io.WriteString(asker, "question")
	asker.CloseWrite()
	if q, err := io.ReadAll(target); err != nil || string(q) != "question" {
		t.Fatalf("%q, %v", q, err)
	}
	io.WriteString(target, "an answer")
	target.Close()
	if a, err := io.ReadAll(asker); err != nil || string(a) != "an answer" {
		t.Fatalf("%q, %v", a, err)
	}
	st := r.until("the link's end", func(st Status) bool { return st.Links == 0 })
	if st.Joined != 1 || st.Broken != 0 || st.Bytes != 17 {
		t.Errorf("%+v", st)
	}
	if runtime.GOOS == "linux" && (st.Spliced != 17 || st.Copied != 0) {
		t.Errorf("payload passed the proxy's memory: %+v", st)
	}
	r.stop()
	testkit.Receive(t, "the end of Serve", r.done) // the lines are written
	r.done <- nil
	for _, want := range []string{
		"job=" + string(job) + " rank=3 peer=5", "sent=8 received=9",
		"job=" + string(job) + " rank=5 peer=3", "sent=9 received=8", `cause="both ends closed"`,
	} {
		if !strings.Contains(r.log.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, r.log)
		}
	}
}

// A reader that does not read stops its sender; the proxy keeps only a pipe and socket buffers
// meanwhile, and nothing is lost.
func TestStuckReader(t *testing.T) {
	r := start(t, Settings{})
	asker, target := r.link()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	h, sent, buf := sha256.New(), 0, make([]byte, 1<<20)
	for i := range buf {
		buf[i] = byte(i * i >> 5)
	}
	for {
		asker.SetWriteDeadline(time.Now().Add(500 * time.Millisecond))
		n, err := asker.Write(buf)
		h.Write(buf[:n])
		sent += n
		if err != nil {
			break // full
		}
		if sent > 1<<30 {
			t.Fatal("a gigabyte was taken for a reader that stands still")
		}
	}
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapInuse) - int64(before.HeapInuse); grown > 8<<20 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
	asker.CloseWrite()
	got := sha256.New()
	if n, err := io.Copy(got, target); err != nil || n != int64(sent) || !bytes.Equal(got.Sum(nil), h.Sum(nil)) {
		t.Errorf("%d of %d bytes arrived whole, %v", n, sent, err)
	}
}

func TestBoundsAreKept(t *testing.T) {
	t.Run("waiting", func(t *testing.T) {
		r := start(t, Settings{Limits: Limits{Waiting: 1}})
		pair := r.tickets()
		first := r.show(pair[0])
		r.until("the first end to wait", func(st Status) bool { return st.Waiting == 1 })
		no := testkit.Refused(r.t, r.show(r.tickets()[0]))
		if no.Code != wire.CodeOverloaded || no.Text != "1 links wait for their second end already" {
			t.Errorf("%+v", no)
		}
		echoes(t, first, r.show(pair[1])) // the second end of a waiting one is always admitted
	})
	t.Run("links", func(t *testing.T) {
		r := start(t, Settings{Limits: Limits{Links: 1}})
		a, b := r.link()
		echoes(t, a, b)
		no := testkit.Refused(r.t, r.show(r.tickets()[0]))
		if no.Code != wire.CodeOverloaded || no.Text != "all 1 links are in use" {
			t.Errorf("%+v", no)
		}
		a.Close()
		b.Close()
		r.until("the link's end", func(st Status) bool { return st.Links == 0 })
		c, d := r.link()
		echoes(t, c, d)
	})
	t.Run("handshakes", func(t *testing.T) {
		r := start(t, Settings{Limits: Limits{Handshakes: 1}})
		silent := r.dial(nil)
		r.until("the silent one to be seen", func(st Status) bool { return st.Handshakes == 1 })
		no := testkit.Refused(r.t, r.show(r.tickets()[0]))
		if no.Code != wire.CodeOverloaded || !strings.Contains(no.Text, "is reached (limits.handshakes") {
			t.Errorf("%+v", no)
		}
		silent.Close()
		r.until("it to leave", func(st Status) bool { return st.Handshakes == 0 })
		pair := r.tickets()
		a := r.show(pair[0])
		r.until("the first end to wait", func(st Status) bool { return st.Waiting == 1 && st.Handshakes == 0 })
		echoes(t, a, r.show(pair[1]))
		if st := r.Status(); st.Refused[TooManyHandshakes] != 1 {
			t.Errorf("%+v", st)
		}
	})
}

// At the end of the proxy, waiting ends get a refusal and links are cut.
func TestShutdown(t *testing.T) {
	r := start(t, Settings{})
	a, b := r.link()
	echoes(t, a, b)
	waiting, silent := r.show(r.tickets()[0]), r.dial(nil)
	r.until("one of each", func(st Status) bool { return st.Waiting == 1 && st.Handshakes == 1 && st.Links == 1 })
	r.stop()
	for _, c := range []*net.TCPConn{waiting, silent} {
		if no := testkit.Refused(r.t, c); no.Code != wire.CodeRefused || no.Text != "the proxy is stopping" {
			t.Errorf("%+v", no)
		}
	}
	for _, c := range []*net.TCPConn{a, b} {
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("an end of a link sees %v", err)
		}
	}
	if err := testkit.Receive(t, "the end of Serve", r.done); err != nil {
		t.Errorf("Serve = %v", err)
	}
	r.done <- nil
	if _, err := net.Dial("tcp", r.addr); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("the listener is open: %v", err)
	}
}

// A failing listener ends Serve with its address in the error.
func TestListenerFails(t *testing.T) {
	ln, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	err = start(t, Settings{}).Server.Serve(context.Background(), ln)
	if err == nil || !strings.HasPrefix(err.Error(), "proxy p1: accepting on 127.0.0.1:") {
		t.Errorf("Serve = %v", err)
	}
}

// Many links, a thousand in full, start and end at once, some of them with errors; nothing leaks.
func TestManyLinksLeakNothing(t *testing.T) {
	warm := start(t, Settings{})
	a, b := warm.link()
	echoes(t, a, b)
	goroutines, descriptors := runtime.NumGoroutine(), countDescriptors(t)
	t.Run("links", func(t *testing.T) {
		r := start(t, Settings{})
		const workers = 10
		each := 10
		if testload.Full() {
			each = 100
		}
		var all sync.WaitGroup
		for w := range workers {
			all.Go(func() {
				for i := range each {
					pair := r.tickets()
					a, b := r.show(pair[(w+i)%2]), r.show(pair[(w+i+1)%2])
					echoes(t, a, b)
					if i%3 == 0 {
						b.SetLinger(0)
					}
					a.Close()
					b.Close()
				}
			})
		}
		all.Wait()
		r.until("all links to end", func(st Status) bool { return st.Links == 0 && st.Joined == uint64(workers*each) })
	})
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		g, d := runtime.NumGoroutine(), countDescriptors(t)
		if g <= goroutines && d <= descriptors+idleDescriptors {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d goroutines and %d descriptors, before %d and %d", g, d, goroutines, descriptors)
		}
	}
}
