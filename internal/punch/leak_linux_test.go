package punch

import (
	"context"
	"net/netip"
	"os"
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

func descriptors(t testing.TB) int {
	t.Helper()
	dir, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(dir)
}

// settle waits until count() is at most want.
func settle(t *testing.T, what string, want int, count func() int) {
	t.Helper()
	for end := time.Now().Add(patience); count() > want; {
		if time.Now().After(end) {
			buf := make([]byte, 1<<20)
			t.Fatalf("%d %s, want at most %d\n%s", count(), what, want, buf[:runtime.Stack(buf, true)])
		}
		time.Sleep(time.Millisecond)
	}
}

// However an attempt or a stream ends, nothing is left of it.
func TestNothingLeaks(t *testing.T) {
	stun := []netip.AddrPort{loopbackSTUN(t, "udp4", "127.0.0.1:0")}
	nobody := silent(t)
	ends := map[string]func(t *testing.T){
		"closed": func(t *testing.T) {
			a, b := connectedTo(t, stun)
			if err := exchange(a, b, 100_000); err != nil {
				t.Error(err)
			}
			closeBoth(t, a, b)
		},
		"aborted": func(t *testing.T) { connectedTo(t, stun) }, // by its clean-up
		"never used": func(t *testing.T) {
			newAttempt(t, Config{STUN: stun})
		},
		"described": func(t *testing.T) {
			describe(t, newAttempt(t, Config{STUN: stun}))
		},
		"without STUN": func(t *testing.T) {
			a := newAttempt(t, Config{STUN: []netip.AddrPort{nobody}, GatherTimeout: time.Millisecond})
			if _, err := a.Describe(context.Background()); err == nil {
				t.Error("described")
			}
		},
		"without answer": func(t *testing.T) {
			a := newAttempt(t, Config{STUN: stun, Timeout: 30 * time.Millisecond})
			describe(t, a)
			d := sample()
			d.Candidates = []Candidate{{Host, nobody}}
			if _, err := a.Connect(context.Background(), d.Append(nil)); err == nil {
				t.Error("connected")
			}
		},
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // the collector must not close what we forgot
	round := func() {
		for name, f := range ends {
			t.Run(name, f)
		}
	}
	round() // what the libraries start once
	fds, goroutines := descriptors(t), runtime.NumGoroutine()
	for range 30 {
		round()
	}
	settle(t, "goroutines", goroutines, runtime.NumGoroutine)
	settle(t, "descriptors", fds, func() int { return descriptors(t) })
}
