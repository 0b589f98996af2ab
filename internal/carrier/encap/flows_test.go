package encap

import (
	"testing"
	"time"
)

// The first relays have connections of their own, the next makes the shared one, and all share when
// dials in a row were not answered.
func TestFlows(t *testing.T) {
	var f flows
	now := time.Unix(1e9, 0)
	expect := func(when string, alive, share, full bool) {
		t.Helper()
		if f.share(alive, now) != share || f.full(now) != full {
			t.Errorf("%s: shares %v, full %v", when, !share, !full)
		}
	}
	for range ownFirst {
		expect("one of the first", false, false, false)
	}
	expect("after the first", false, true, false)
	expect("with a shared connection", true, false, false)
	for range fullAfter - 1 {
		f.notAnswered(now)
	}
	f.answered()
	for range fullAfter - 1 {
		f.notAnswered(now)
		expect("after some", true, false, false)
	}
	f.notAnswered(now)
	expect("after all", true, true, true)
	f.answered() // a session of another host has ended
	expect("after an answer", true, true, true)
	now = now.Add(fullMemory + time.Second)
	expect("later", true, false, false)
	for range ownFirst - 1 { // what there was has ended
		expect("later, without a shared connection", false, false, false)
	}
	expect("later, after the first", false, true, false)
}
