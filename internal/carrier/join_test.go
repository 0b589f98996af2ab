package carrier

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// random writes n bytes in pieces of many sizes and returns their digest.
func random(w io.Writer, n int) ([]byte, error) {
	src := rand.NewChaCha8([32]byte{byte(n)})
	h := sha256.New()
	for buf := make([]byte, 300_000); n > 0; {
		piece := buf[:min(n, 1+int(src.Uint64()%uint64(len(buf))))]
		src.Read(piece)
		h.Write(piece)
		if _, err := w.Write(piece); err != nil {
			return nil, err
		}
		n -= len(piece)
	}
	return h.Sum(nil), nil
}

// Both directions at once, of different length: the shorter ends first and the longer continues
// through a half-closed joint.
func TestBothWaysAndHalfClose(t *testing.T) {
	j := startJoin(t, context.Background(), Options{})
	const there, back = 7_000_001, 20_000_003
	var sums [2][]byte
	got := [2]io.Writer{sha256.New(), sha256.New()}
	var all sync.WaitGroup
	for i, end := range []struct {
		from, to *net.TCPConn
		n        int
	}{{j.left, j.right, there}, {j.right, j.left, back}} {
		all.Go(func() {
			sum, err := random(end.from, end.n)
			if err != nil {
				t.Error(err)
			}
			sums[i] = sum
			end.from.CloseWrite()
		})
		all.Go(func() {
			if _, err := io.Copy(got[i], end.to); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	r := j.wait(t)
	if r.err != nil {
		t.Fatal(r.err)
	}
	for i := range got {
		if sum := got[i].(interface{ Sum([]byte) []byte }).Sum(nil); !bytes.Equal(sum, sums[i]) {
			t.Errorf("direction %d was changed on the way", i)
		}
	}
	if r.stats.AToB != there || r.stats.BToA != back {
		t.Errorf("counted %+v, want %d and %d", r.stats, there, back)
	}
	if runtime.GOOS == "linux" && (r.stats.Spliced != there+back || r.stats.Copied != 0) {
		t.Errorf("%+v: bytes passed through user space", r.stats)
	}
}

// A question and its answer after the asker half-closed, as in request protocols.
func TestAnswerAfterHalfClose(t *testing.T) {
	j := startJoin(t, context.Background(), Options{})
	io.WriteString(j.left, "question")
	j.left.CloseWrite()
	q, err := io.ReadAll(j.right)
	if err != nil || string(q) != "question" {
		t.Fatalf("%q, %v", q, err)
	}
	io.WriteString(j.right, "answer")
	j.right.Close()
	if a, err := io.ReadAll(j.left); err != nil || string(a) != "answer" {
		t.Fatalf("%q, %v", a, err)
	}
	if r := j.wait(t); r.err != nil {
		t.Error(r.err)
	}
}

// A reader that does not read stops the writer, and everything arrives once it reads again.
func TestBackPressure(t *testing.T) {
	j := startJoin(t, context.Background(), Options{})
	j.left.SetWriteDeadline(time.Now().Add(30 * time.Second))
	sent, full := 0, false
	buf := make([]byte, 1<<20)
	for sent < 1<<30 {
		j.left.SetWriteDeadline(time.Now().Add(500 * time.Millisecond))
		n, err := j.left.Write(buf)
		sent += n
		if isTimeout(err) {
			full = true
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if !full {
		t.Fatalf("%d bytes were taken for a reader that stands still", sent)
	}
	j.left.CloseWrite()
	n, err := io.Copy(io.Discard, j.right)
	if err != nil || n != int64(sent) {
		t.Fatalf("%d of %d bytes arrived, %v", n, sent, err)
	}
	j.right.Close()
	if r := j.wait(t); r.err != nil || r.stats.AToB != uint64(sent) {
		t.Errorf("%+v", r)
	}
}

func TestResetStaysReset(t *testing.T) {
	j := startJoin(t, context.Background(), Options{})
	io.WriteString(j.left, "x")
	io.ReadFull(j.right, make([]byte, 1))
	j.left.SetLinger(0)
	j.left.Close()
	if _, err := j.right.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the other end sees %v", err)
	}
	r := j.wait(t)
	if !errors.Is(r.err, syscall.ECONNRESET) || !strings.HasPrefix(r.err.Error(), "read from 127.0.0.1:") {
		t.Errorf("Join = %v", r.err)
	}
}

// A side that goes away while the other still sends: what it sent before arrives, and the sender
// gets an error.
func TestWriterLearnsOfDeadReader(t *testing.T) {
	j := startJoin(t, context.Background(), Options{})
	io.WriteString(j.right, "last words")
	j.right.Close()
	if b, err := io.ReadAll(j.left); err != nil || string(b) != "last words" {
		t.Fatalf("%q, %v", b, err)
	}
	buf := make([]byte, 64<<10)
	var err error
	for range 10_000 {
		if _, err = j.left.Write(buf); err != nil {
			break
		}
	}
	if err == nil {
		t.Error("the sender can send for ever")
	}
	if r := j.wait(t); r.err == nil {
		t.Error("Join calls that a proper end")
	}
}

func TestEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	j := startJoin(t, ctx, Options{})
	why := errors.New("revoked")
	cancel(why)
	if r := j.wait(t); r.err != why {
		t.Errorf("Join = %v", r.err)
	}
	if _, err := j.left.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("an end sees %v, want a reset", err)
	}
}

// The limit counts both directions together, and passes exactly that much.
func TestLimit(t *testing.T) {
	for _, limit := range []uint64{1, 1000, 3_000_000} {
		j := startJoin(t, context.Background(), Options{Limit: limit})
		go random(j.left, int(limit))
		if _, err := io.ReadFull(j.right, make([]byte, limit)); err != nil {
			t.Fatal(err)
		}
		io.WriteString(j.right, "x") // one too many, the other way
		r := j.wait(t)
		if !errors.Is(r.err, ErrLimit) || r.stats.AToB != limit || r.stats.BToA != 0 {
			t.Errorf("limit %d: %+v, %v", limit, r.stats, r.err)
		}
	}
	j := startJoin(t, context.Background(), Options{Limit: 5})
	io.WriteString(j.left, "12345")
	j.left.CloseWrite()
	j.right.CloseWrite()
	if r := j.wait(t); r.err != nil || r.stats.AToB != 5 {
		t.Errorf("a link that keeps to its limit: %+v", r)
	}
}

func TestSpend(t *testing.T) {
	b := budget{limit: 10}
	for i, tc := range [][2]int{{4, 4}, {6, 6}, {1, 0}, {100, 0}} {
		if got := b.spend(tc[0]); got != tc[1] {
			t.Errorf("step %d: spend(%d) = %d, want %d", i, tc[0], got, tc[1])
		}
	}
	if b := (budget{limit: 10}); b.spend(15) != 10 {
		t.Error("the part within the limit may not pass")
	}
	if b := new(budget); b.spend(1<<40) != 1<<40 {
		t.Error("no limit is a limit")
	}
}

func TestIdle(t *testing.T) {
	j := startJoin(t, context.Background(), Options{Idle: 50 * time.Millisecond})
	r := j.wait(t)
	if !errors.Is(r.err, overlay.ErrTimeout) || !strings.Contains(r.err.Error(), "neither end sent anything for 50ms") {
		t.Errorf("Join = %v", r.err)
	}
}

// A deadline left by the handshake does not end the join.
func TestOldDeadlinesAreLifted(t *testing.T) {
	left, a := pair(t)
	right, b := pair(t)
	a.SetDeadline(time.Unix(1, 0))
	b.SetDeadline(time.Unix(1, 0))
	result := make(chan error, 1)
	go func() {
		_, err := Join(context.Background(), a, b, Options{})
		result <- err
	}()
	io.WriteString(left, "hello")
	if _, err := io.ReadFull(right, make([]byte, 5)); err != nil {
		t.Error(err)
	}
	left.Close()
	right.Close()
	select {
	case err := <-result:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Error("the join did not end")
	}
}

func TestMeterIsLive(t *testing.T) {
	j := startJoin(t, context.Background(), Options{})
	io.WriteString(j.left, "four")
	io.ReadFull(j.right, make([]byte, 4))
	io.WriteString(j.right, "4")
	io.ReadFull(j.left, make([]byte, 1))
	// Bytes are counted right after they left, so the count may come a moment later.
	for end := time.Now().Add(30 * time.Second); j.meter.Stats().Total() != 5; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("%+v while the join runs", j.meter.Stats())
		}
	}
}

// The portable copy fulfils every guarantee that is not about the kernel.
func TestCopyThrough(t *testing.T) {
	left, a := pair(t)
	right, b := pair(t)
	m := new(Meter)
	f := &flow{from: a, to: b, meter: m, dir: 1, budget: &budget{limit: 6}}
	io.WriteString(left, "123456789")
	if err := f.copyInUserSpace(); !errors.Is(err, ErrLimit) {
		t.Errorf("copyThrough = %v", err)
	}
	b.Close()
	if got, _ := io.ReadAll(right); string(got) != "123456" {
		t.Errorf("%q arrived", got)
	}
	if s := m.Stats(); s != (Stats{BToA: 6, Copied: 6}) {
		t.Errorf("counted %+v", s)
	}
}
