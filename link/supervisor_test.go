package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-grid/isthmus/link/stream"
	"github.com/isthmus-grid/isthmus/overlay"
)

// TestLinkSurvivesResets: connections are reset again and again, and every byte
// arrives once and in order.
func TestLinkSurvivesResets(t *testing.T) { plainAndSealed(t, linkSurvivesResets) }

func linkSurvivesResets(t *testing.T, r *roads) {
	a, b := couple(t, r, 0)
	if (a.Path.Cipher != "") != r.seal {
		t.Fatalf("cipher %q", a.Path.Cipher)
	}
	stop := make(chan struct{})
	var cutting sync.WaitGroup
	cutting.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond): // enough for some data to get through
				r.cut()
			}
		}
	})
	for r.count(overlay.Direct) < 10 && !t.Failed() {
		pump(t, a, b, 4<<20)
	}
	close(stop)
	cutting.Wait()
	pump(t, a, b, 1<<20)
}

// TestLinkSurvivesSilence: a path that drops everything is left for another one, long before TCP
// itself would notice.
func TestLinkSurvivesSilence(t *testing.T) { plainAndSealed(t, linkSurvivesSilence) }

func linkSurvivesSilence(t *testing.T, r *roads) {
	a, b := couple(t, r, 0)
	pump(t, a, b, 1<<20)
	for i := range 3 {
		r.mute(overlay.Direct, overlay.Relay)
		pump(t, a, b, 1<<20)
		// It may continue over the standby relay that was dialled after the previous loss.
		if n := r.total(); n < i+2 {
			t.Fatalf("%d connections were made, data went on after %d losses", n, i+1)
		}
	}
}

// TestLostLinkSaysWhy: a link that cannot be restored ends in time, and its error names every
// attempt.
func TestLostLinkSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoads(t)
		a, b := couple(t, r, 700*time.Millisecond)
		for _, technique := range []overlay.Technique{overlay.Direct, overlay.Relay} {
			r.block(technique, fmt.Errorf("the bridge is up: %w", overlay.ErrUnreachable))
		}
		r.cut()
		for _, l := range []*Link{a, b} {
			_, err := l.Conn.Read(make([]byte, 1))
			if err == nil || !strings.Contains(err.Error(), "not restored") || !errors.Is(err, overlay.ErrUnreachable) && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("rank %d: %v", l.Peer.Rank, err)
			}
			if _, again := l.Conn.Write([]byte("x")); again == nil {
				t.Error("a lost link takes data")
			}
		}
	})
}

// TestCloseOfALink: what was written before arrives, then the end; and the other end learns that
// its data is not read any more.
func TestCloseOfALink(t *testing.T) { plainAndSealed(t, closeOfALink) }

func closeOfALink(t *testing.T, r *roads) {
	a, b := couple(t, r, 0)
	sent := make([]byte, 3<<20)
	rand.NewChaCha8([32]byte{}).Read(sent)
	var writing sync.WaitGroup
	writing.Go(func() {
		a.Conn.Write(sent)
		a.Conn.Close()
	})
	b.Conn.SetReadDeadline(time.Now().Add(time.Minute))
	got, err := io.ReadAll(b.Conn)
	if err != nil || string(got) != string(sent) {
		t.Fatalf("%d of %d bytes, %v", len(got), len(sent), err)
	}
	writing.Wait()
	for until := time.Now().Add(30 * time.Second); ; {
		if _, err := b.Conn.Write(sent); errors.Is(err, net.ErrClosed) {
			break
		} else if err != nil || time.Now().After(until) {
			t.Fatalf("writing to a closed link: %v", err)
		}
	}
	if _, err := a.Conn.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("reading a closed link: %v", err)
	}
	if err := a.Conn.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("closing it again: %v", err)
	}
}

// TestLinkDeadlines: a deadline ends a wait, and the link continues.
func TestLinkDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoads(t)
		a, b := couple(t, r, 0)
		a.Conn.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		if _, err := a.Conn.Read(make([]byte, 1)); err == nil || !isTimeout(err) {
			t.Errorf("read: %v", err)
		}
		a.Conn.SetReadDeadline(time.Time{})
		var wrote int
		end := time.Now().Add(30 * time.Second)
		for err := error(nil); err == nil || wrote < stream.Window && time.Now().Before(end); {
			a.Conn.SetWriteDeadline(time.Now().Add(time.Second))
			var n int
			n, err = a.Conn.Write(make([]byte, 1<<20)) // not read: a window fits
			if wrote += n; err != nil && !isTimeout(err) {
				t.Errorf("write: %v", err)
			}
		}
		if wrote < stream.Window {
			t.Errorf("only %d bytes were taken", wrote)
		}
		a.Conn.SetWriteDeadline(time.Time{})
		if _, err := io.ReadFull(b.Conn, make([]byte, wrote)); err != nil {
			t.Fatal(err)
		}
		pump(t, a, b, 1<<20)
	})
}

func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}

// A further dial has the time of the round trips in which two ends agree, however long these are.
func TestDialBound(t *testing.T) {
	for trip, want := range map[time.Duration]time.Duration{
		20 * time.Millisecond: oneDial, 600 * time.Millisecond: 8800 * time.Millisecond, 1400 * time.Millisecond: 19200 * time.Millisecond,
	} {
		if got := (&supervisor{link: &Link{RTT: trip}}).oneDial(); got != want {
			t.Errorf("%v: %v, want %v", trip, got, want)
		}
	}
}
