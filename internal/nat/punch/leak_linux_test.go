package punch

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/testkit"
)

// However an attempt or a stream ends, nothing leaks.
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
		"aborted": func(t *testing.T) { connectedTo(t, stun) }, // ended by its clean-up
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
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // the collector must not close what the code forgot
	round := func() {
		for name, f := range ends {
			t.Run(name, f)
		}
	}
	round() // what the libraries start once
	fds, goroutines := testkit.Descriptors(t), runtime.NumGoroutine()
	for range 10 {
		round()
	}
	settle(t, "goroutines", goroutines, runtime.NumGoroutine)
	settle(t, "descriptors", fds, func() int { return testkit.Descriptors(t) })
}

// However tunnels end, nothing leaks.
func TestTunnelsLeaveNothing(t *testing.T) {
	stun := []netip.AddrPort{loopbackSTUN(t, "udp4", "127.0.0.1:0")}
	round := func(i int) {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			a, b := connectedTo(t, stun)
			a.Tunnel().Keep(time.Millisecond)
			b.Tunnel().Keep(time.Hour) // a's end cuts this short
			ca, cb := mustReopen(t, a, b)
			o, err := a.Tunnel().Open(newToken()) // never accepted
			if err != nil {
				t.Fatal(err)
			}
			defer o.Abort()
			if i%2 == 0 {
				if err := errors.Join(exchange(ca, cb, 10_000), deliver(ca, cb), deliver(a, b)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	round(0)
	round(1)
	goroutines, fds := runtime.NumGoroutine(), testkit.Descriptors(t)
	for i := range 8 {
		round(i)
	}
	settle(t, "goroutines", goroutines, runtime.NumGoroutine)
	settle(t, "descriptors", fds, func() int { return testkit.Descriptors(t) })
}
