package frontal

import (
	"testing"
	"time"
)

// A full NAT is remembered for a while since it was last seen, with the most connections.
func TestSessionLimit(t *testing.T) {
	var l sessionLimit
	now := time.Unix(1e9, 0)
	if l.limit(now) != 0 || l.expire(now) {
		t.Error("a limit that nobody has seen")
	}
	if !l.seen(50, now) || l.limit(now) != 50 {
		t.Errorf("new: %d", l.limit(now))
	}
	now = now.Add(sessionMemory - time.Second)
	if l.seen(10, now) || l.limit(now) != 50 {
		t.Errorf("seen again: %d", l.limit(now))
	}
	if now = now.Add(sessionMemory - time.Second); l.limit(now) != 50 || l.expire(now) {
		t.Errorf("before it is over: %d", l.limit(now))
	}
	if now = now.Add(time.Second); l.limit(now) != 0 || !l.expire(now) || l.expire(now) {
		t.Errorf("when it is over: %d", l.limit(now))
	}
	if !l.seen(0, now) || l.limit(now) != 1 {
		t.Errorf("without a number: %d", l.limit(now))
	}
}
