package link

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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

// outcomeOf returns the last outcome of a technique of which its connector was notified.
func outcomeOf(r *roads, technique overlay.Technique) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return fmt.Sprint(r.outcomes[technique])
}

// comesToOutcome waits until the last outcome of the direct path contains a text, and returns that
// outcome, or "" when it takes too long.
func comesToOutcome(r *roads, text string) string {
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(stream.Tick) {
		if outcome := outcomeOf(r, overlay.Direct); strings.Contains(outcome, text) {
			return outcome
		}
	}
	return ""
}

// TestLinkLeavesASlowPath: a path of the better kind that suddenly carries next to nothing is left
// for a relay, in both directions and for good; the path says why, and the connector that made the
// carrier is notified.
func TestLinkLeavesASlowPath(t *testing.T) { synctest.Test(t, leavesASlowPath) }

func leavesASlowPath(t *testing.T) {
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
	if !comesTo(a, overlay.Relay, 20*time.Second) || !comesTo(b, overlay.Relay, 20*time.Second) {
		t.Fatal("it stayed on its own path, which carried little")
	}
	outcome := comesToOutcome(r, "direct carried ")
	if outcome == "" {
		t.Fatal("the last outcome of the path that it left is", outcomeOf(r, overlay.Direct))
	}
	if !strings.Contains(outcome, "a relay ") {
		t.Errorf("the outcome %q does not compare with the relay", outcome)
	}
	dialler := a
	if b.Dialled {
		dialler = b
	}
	if p, _ := dialler.Current(); !strings.Contains(p.Reason, "direct carried ") {
		t.Fatalf("the path's reason is %q", p.Reason)
	}
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(stream.Tick) {
		if p, _ := a.Current(); p.Technique != overlay.Relay {
			t.Fatalf("it left the relay for %v", p)
		}
	}
	if n := r.count(overlay.Relay); n != 1 {
		t.Fatalf("%d relays were dialled", n)
	}
	stop()
	pump(t, a, b, 4<<20)
}

// TestDeadPathIsToldOf: the connector that made a carrier is notified that its path carries less
// than a relay, even if the path died during the measurement.
func TestDeadPathIsToldOf(t *testing.T) { synctest.Test(t, tellsOfADeadPath) }

func tellsOfADeadPath(t *testing.T) {
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
	if !comesTo(a, overlay.Relay, 20*time.Second) {
		t.Fatal("it stayed on its own path, which carried little")
	}
	r.mute(overlay.Direct)
	r.block(overlay.Direct, overlay.ErrTimeout)
	if comesToOutcome(r, "direct carried ") == "" {
		t.Fatal("the last outcome of the path that died is", outcomeOf(r, overlay.Direct))
	}
}

// TestRelayIsNoBetter: where all paths carry the same little, the link returns to its own path
// after a trial, and does not try again soon.
func TestRelayIsNoBetter(t *testing.T) { synctest.Test(t, relayIsNoBetter) }

func relayIsNoBetter(t *testing.T) {
	r := newRoads(t)
	r.smallBuffers = true
	a, b := couple(t, r, 0)
	pump(t, a, b, 1<<20)
	r.narrows(overlay.Direct, slowRate/4)
	r.narrows(overlay.Relay, slowRate/4)
	stop := busily(t, a, b)
	defer stop()
	if !comesTo(a, overlay.Relay, 20*time.Second) {
		t.Fatal("it never tried a relay")
	}
	if !comesTo(a, overlay.Direct, 20*time.Second) {
		t.Fatal("it never returned to its own path")
	}
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(stream.Tick) {
		if p, _ := a.Current(); p.Technique != overlay.Direct {
			t.Fatalf("it left its own path again for %v", p)
		}
	}
}
