package frontal

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// A full NAT is remembered for a while since it was last seen, with the most connections, and the
// broker hears of both ends of that.
func TestSessionLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		news := 0
		l := sessionLimit{log: slog.New(slog.DiscardHandler), news: func() { news++ }}
		expect := func(when string, limit uint32, told int) {
			t.Helper()
			if l.expire(time.Now()); l.limit(time.Now()) != limit || news != told {
				t.Errorf("%s: %d, told %d times; want %d and %d", when, l.limit(time.Now()), news, limit, told)
			}
		}
		expect("a limit that nobody has seen", 0, 0)
		if !l.awaitRoom(t.Context()) {
			t.Error("waited for room where there is some")
		}
		l.seen(ownWord, 50, time.Now())
		expect("new", 50, 1)
		time.Sleep(sessionMemory - time.Second)
		l.seen(ownWord, 10, time.Now())
		expect("seen again", 50, 1)
		begin := time.Now()
		if !l.awaitRoom(t.Context()) || time.Since(begin) != sessionMemory {
			t.Errorf("waited %v for room", time.Since(begin))
		}
		expect("over", 0, 2)
		l.seen(ownWord, 0, time.Now())
		expect("without a number", 1, 3)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if l.awaitRoom(ctx) {
			t.Error("there is room")
		}
	})
}

// What one of several nodes says of a full NAT does not count for the site, however often it says so; what two say does.
func TestSessionLimitOfOneNode(t *testing.T) {
	news := 0
	l := sessionLimit{log: slog.New(slog.DiscardHandler), news: func() { news++ }}
	now := time.Unix(1_000_000, 0)
	expect := func(when string, limit uint32, told int) {
		t.Helper()
		if l.expire(now); l.limit(now) != limit || news != told {
			t.Errorf("%s: %d, told %d times; want %d and %d", when, l.limit(now), news, limit, told)
		}
	}
	for range 20 { // of a hostile node
		l.seen("a1", maxSessions, now)
		now = now.Add(time.Minute)
	}
	expect("as one node says", 0, 0)
	l.seen("a2", 7, now)
	expect("as two say", maxSessions, 1)
	now = now.Add(sessionMemory - time.Minute)
	l.seen("a2", 9, now)
	expect("as one has not said again", 0, 2)
	l.seen("a3", 8, now)
	expect("as another says", 9, 3)
	for i := range 10 * maxWitnesses {
		l.seen(fmt.Sprint("n", i), 1, now)
	}
	if n := len(l.nodes); n != maxWitnesses {
		t.Errorf("%d nodes are remembered", n)
	}
	now = now.Add(sessionMemory)
	if expect("over", 0, 4); len(l.nodes) > 0 {
		t.Errorf("%d nodes are remembered", len(l.nodes))
	}
}
