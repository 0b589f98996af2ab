package outcomes

import (
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

func TestMemory(t *testing.T) {
	m := New()
	t0 := time.Unix(1_000_000, 0)
	expect := func(when time.Time, plan uint64, winner overlay.Technique, barred ...overlay.Technique) {
		t.Helper()
		w, bs := m.Advice("siteb", plan, when)
		if w.Technique != winner || len(bs) != len(barred) {
			t.Fatalf("winner %v, barred %v; want %v, %v", w.Technique, bs, winner, barred)
		}
		for i, b := range bs {
			if b.Technique != barred[i] {
				t.Fatalf("barred %v, want %v", bs, barred)
			}
		}
	}
	expect(t0, 1, 0)
	for range 2 {
		m.Failed("siteb", 1, overlay.SimultaneousOpen, "silence", t0)
	}
	expect(t0, 1, 0)
	m.Failed("siteb", 1, overlay.SimultaneousOpen, "silence", t0)
	m.Connected("siteb", 1, overlay.Relay, 40*time.Millisecond, t0)
	expect(t0, 1, overlay.Relay, overlay.SimultaneousOpen)
	if w, _ := m.Advice("siteb", 1, t0); w.Setup != 40*time.Millisecond {
		t.Errorf("the relay took %v", w.Setup)
	}
	if _, bs := m.Advice("siteb", 1, t0.Add(20*time.Minute)); !strings.Contains(bs[0].Reason, "failed 3 times in a row, to be tried again in 40m0s: silence") {
		t.Errorf("reason %q", bs[0].Reason)
	}
	expect(t0.Add(59*time.Minute), 1, overlay.Relay, overlay.SimultaneousOpen)
	expect(t0.Add(61*time.Minute), 1, 0) // one more attempt, and the winner is old

	// One more failure bars it for another hour at once; a success ends that.
	m.Failed("siteb", 1, overlay.SimultaneousOpen, "silence", t0.Add(61*time.Minute))
	expect(t0.Add(62*time.Minute), 1, 0, overlay.SimultaneousOpen)
	m.Connected("siteb", 1, overlay.SimultaneousOpen, time.Millisecond, t0.Add(63*time.Minute))
	expect(t0.Add(63*time.Minute), 1, overlay.SimultaneousOpen)

	// A winner that fails is no longer the winner; the relay is never barred.
	m.Failed("siteb", 1, overlay.SimultaneousOpen, "silence", t0.Add(64*time.Minute))
	expect(t0.Add(64*time.Minute), 1, 0)
	for range 5 {
		m.Failed("siteb", 1, overlay.Relay, "no proxy", t0.Add(64*time.Minute))
	}
	expect(t0.Add(64*time.Minute), 1, 0)

	// One that has worked is barred for a short time only.
	for range 3 {
		m.Failed("siteb", 1, overlay.SimultaneousOpen, "silence", t0.Add(64*time.Minute))
	}
	expect(t0.Add(64*time.Minute+14*time.Second), 1, 0, overlay.SimultaneousOpen)
	expect(t0.Add(64*time.Minute+15*time.Second), 1, 0)
	m.Connected("siteb", 1, overlay.SimultaneousOpen, time.Millisecond, t0.Add(64*time.Minute))
	m.Failed("siteb", 1, overlay.SimultaneousOpen, "silence", t0.Add(64*time.Minute))

	// Another plan means another network: the old outcomes are discarded.
	for range 3 {
		m.Failed("siteb", 1, overlay.HolePunching, "silence", t0.Add(64*time.Minute))
	}
	expect(t0.Add(64*time.Minute), 1, 0, overlay.HolePunching)
	expect(t0.Add(64*time.Minute), 2, 0)
	m.Failed("siteb", 2, overlay.HolePunching, "silence", t0.Add(64*time.Minute))
	expect(t0.Add(64*time.Minute), 2, 0)
	if st := m.Status(t0.Add(64 * time.Minute)); len(st) != 1 || len(st[0].Techniques) != 1 || st[0].Techniques[0].Failures != 1 {
		t.Errorf("status %+v", st)
	}
}

// TestInferiorMemory: a technique that is slower than another is skipped for a time that doubles
// while that is so, regardless of how many links report it at once.
func TestInferiorMemory(t *testing.T) {
	m := New()
	now := time.Unix(1_000_000, 0)
	m.Connected("siteb", 1, overlay.HolePunching, time.Millisecond, now)
	for _, step := range []struct{ after, want time.Duration }{
		{0, 30 * time.Second},
		{time.Minute, time.Minute},
		{3 * time.Minute, 2 * time.Minute},
		{24 * time.Hour, 30 * time.Second},
	} {
		now = now.Add(step.after)
		for range 20 {
			m.Inferior("siteb", 1, overlay.HolePunching, "it carried 0.3 Mb/s", now)
		}
		winner, barred := m.Advice("siteb", 1, now.Add(step.want-time.Second))
		if winner.Technique != 0 || len(barred) != 1 || !barred[0].Inferior || barred[0].Reason != "it carried 0.3 Mb/s; to be tried again in 1s" {
			t.Errorf("after %v: winner %v, barred %+v", step.after, winner, barred)
		}
		if _, barred := m.Advice("siteb", 1, now.Add(step.want)); len(barred) > 0 {
			t.Errorf("after %v: still barred %+v", step.after, barred)
		}
	}
	m.Inferior("siteb", 1, overlay.Relay, "what is left without it", now)
	if st := m.Status(now); st[0].Techniques[0].Reason == "" || !st[0].Techniques[0].Barred || st[0].Techniques[1].Barred {
		t.Errorf("status %+v", st)
	}
	for now = now.Add(time.Hour); ; now = now.Add(2 * time.Minute) {
		m.Inferior("siteb", 1, overlay.HolePunching, "it carried 0.3 Mb/s", now)
		if m.of("siteb", 1).tech(overlay.HolePunching).inferiorFor > maxInferior {
			t.Fatal("left out for ever longer")
		}
		if now.Unix() > 2_000_000 {
			break
		}
	}
}
