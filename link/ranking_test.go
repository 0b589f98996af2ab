package link

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/testload"
	"github.com/isthmus-grid/isthmus/link/stream"
	"github.com/isthmus-grid/isthmus/overlay"
)

// busily keeps both directions of a link busy until the returned function is called, which waits
// for the end.
func busily(t *testing.T, a, b *Link) (stop func()) {
	over := make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		for {
			select {
			case <-over:
				return
			default:
				pump(t, a, b, 256<<10)
			}
		}
	})
	return sync.OnceFunc(func() { close(over); work.Wait() })
}

// stays watches a link for a time in which it must not change how it sends.
func stays(t *testing.T, l *Link, want overlay.Technique, d time.Duration) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(stream.Tick) {
		if p, _ := l.Current(); p.Technique != want {
			t.Fatalf("it sends by %v, and was to stay with %v", p, want)
		}
	}
}

// TestLinkLeavesASlowPath: a path of the better kind that suddenly carries next to nothing is left
// for a relay, in both directions and for good; the path says why, and the connector that made the
// carrier is notified. Where the relay carries no more the link comes back.
func TestLinkLeavesASlowPath(t *testing.T) {
	r := newRoads(t)
	r.smallBuffers = true
	a, b := couple(t, r, 0)
	pump(t, a, b, 4<<20)
	r.mu.Lock()
	r.outcomes[overlay.Direct] = nil
	r.mu.Unlock()
	r.narrows(overlay.Direct, 200e3)
	stop := busily(t, a, b)
	defer stop()
	current(t, a, overlay.Relay)
	current(t, b, overlay.Relay)
	told := func() string {
		r.mu.Lock()
		defer r.mu.Unlock()
		return fmt.Sprint(r.outcomes[overlay.Direct])
	}
	for end := time.Now().Add(30 * time.Second); !strings.Contains(told(), "direct carried "); time.Sleep(stream.Tick) {
		if time.Now().After(end) {
			t.Fatalf("nobody was told that the path was given up; the last outcome is %s", told())
		}
	}
	if !strings.Contains(told(), "a relay ") {
		t.Errorf("told %s", told())
	}
	dialler := a
	if b.Dialled {
		dialler = b
	}
	if p, _ := dialler.Current(); !strings.Contains(p.Reason, "direct carried ") {
		t.Errorf("the path's reason is %q", p.Reason)
	}
	stays(t, a, overlay.Relay, 5*time.Second)
	if n := r.count(overlay.Relay); n != 1 {
		t.Errorf("%d relays were dialled", n)
	}
	stop()
	pump(t, a, b, 16<<20)
}

// TestDeadPathIsToldOf: the connector that made a carrier is notified that its path carries less
// than a relay, even if the path died during the measurement.
func TestDeadPathIsToldOf(t *testing.T) {
	r := newRoads(t)
	r.smallBuffers = true
	a, b := couple(t, r, 0)
	pump(t, a, b, 4<<20)
	r.mu.Lock()
	r.outcomes[overlay.Direct] = nil
	r.mu.Unlock()
	r.narrows(overlay.Direct, 200e3)
	stop := busily(t, a, b)
	defer stop()
	current(t, a, overlay.Relay)
	r.mute(overlay.Direct)
	r.block(overlay.Direct, overlay.ErrTimeout)
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(stream.Tick) {
		r.mu.Lock()
		told := r.outcomes[overlay.Direct]
		r.mu.Unlock()
		if told != nil && strings.Contains(told.Error(), "direct carried ") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("told %v", told)
		}
	}
}

// TestRelayIsNoBetter: where all paths carry the same little, the link returns to its own path
// after a trial, and does not try again soon. On a busy machine two measurements of the same rate
// may differ, and the link then decides otherwise: one of a few links does not.
func TestRelayIsNoBetter(t *testing.T) {
	links := int(5 * testload.Slowdown())
	for n := range links {
		var done bool
		t.Run(fmt.Sprint(n+1), func(t *testing.T) { done = relayIsNoBetter(t) })
		if done || t.Failed() {
			return
		}
	}
	t.Errorf("none of %d links came back to its own path, and stayed", links)
}

func relayIsNoBetter(t *testing.T) bool {
	r := newRoads(t)
	r.smallBuffers = true
	a, b := couple(t, r, 0)
	pump(t, a, b, 1<<20)
	r.narrows(overlay.Direct, 200e3)
	r.narrows(overlay.Relay, 200e3)
	stop := busily(t, a, b)
	defer stop()
	if !comesTo(a, overlay.Relay, 20*time.Second) || !comesTo(a, overlay.Direct, 20*time.Second) {
		return false
	}
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(stream.Tick) {
		if p, _ := a.Current(); p.Technique != overlay.Direct {
			return false
		}
	}
	return true
}
