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
		if f.share(alive, ownFirst, now) != share || f.full(now) != full {
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

// Nodes behind one NAT have their parts of its room, which none of them has to itself.
func TestFirstOf(t *testing.T) {
	for nodes, want := range map[int]int{0: ownFirst, 1: ownFirst, 4: ownFirst, 5: 3, 8: 2, 16: 1, 1000: 1} {
		if got := firstOf(nodes); got != want {
			t.Errorf("%d nodes: %d relays have their own connections at first, want %d", nodes, got, want)
		}
	}
	d := NewDialer(nil)
	d.SetNodes(8)
	for range 2 {
		if _, must := d.shareOf(place{addr: "proxy"}); must {
			t.Error("one of the first of a node of eight shares")
		}
	}
	if _, must := d.shareOf(place{addr: "proxy"}); !must {
		t.Error("the third of a node of eight does not share")
	}
}
