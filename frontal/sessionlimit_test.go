package frontal

import (
	"context"
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
		l.seen(50, time.Now())
		expect("new", 50, 1)
		time.Sleep(sessionMemory - time.Second)
		l.seen(10, time.Now())
		expect("seen again", 50, 1)
		begin := time.Now()
		if !l.awaitRoom(t.Context()) || time.Since(begin) != sessionMemory {
			t.Errorf("waited %v for room", time.Since(begin))
		}
		expect("over", 0, 2)
		l.seen(0, time.Now())
		expect("without a number", 1, 3)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if l.awaitRoom(ctx) {
			t.Error("there is room")
		}
	})
}
