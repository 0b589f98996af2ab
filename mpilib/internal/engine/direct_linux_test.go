package engine

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

// has waits until an engine has so many messages that found no receive.
func has(t *testing.T, e *Engine, n int) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); len(e.UnexpectedMessages()) != n; {
		if _, _, err := e.Iprobe(everyone{}, 0, 0, 99, false); err != nil || time.Now().After(end) {
			t.Fatalf("%d messages are kept, want %d; %v", len(e.UnexpectedMessages()), n, err)
		}
	}
}

// Messages from one process are received in their order, whether one finds its receive
// posted, is kept, or is taken from the ring by who waits for it.
func TestDirectKeepsOrder(t *testing.T) {
	es, _ := together(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	send := func(tag int, b byte) {
		if err := es[0].Send(ctx, everyone{}, 0, 1, tag, []byte{b}, Standard); err != nil {
			t.Fatal(err)
		}
	}
	for round := range 3 * directsPerSweep {
		var posted Handle
		early, got := make([]byte, 1), make([]byte, 1)
		want := func(what string, tag int, b byte) {
			t.Helper()
			r, err := es[1].Recv(ctx, everyone{}, 0, 0, tag, got)
			if err != nil || r.Tag != 5 || r.Source != 0 || r.Bytes != 1 || got[0] != b {
				t.Fatalf("round %d, %s: %+v, %v, %d", round, what, r, err, got)
			}
		}
		send(5, 1)
		has(t, es[1], 1)
		send(5, 2)
		want("the one that is kept", 5, 1)
		want("the one in the ring", AnyTag, 2)

		es[1].StartRecv(&posted, everyone{}, 0, 0, AnyTag, early)
		send(5, 3)
		send(5, 4)
		want("the one behind that of a posted receive", 5, 4)
		if _, err := posted.Wait(ctx); err != nil || early[0] != 3 {
			t.Fatalf("round %d: the posted receive: %v, %d", round, err, early)
		}

		send(6, 5)
		send(5, 6)
		want("the one behind that of another tag", 5, 6)
		if _, err := es[1].Recv(ctx, everyone{}, 0, 0, 6, got); err != nil || got[0] != 5 {
			t.Fatalf("round %d: the one of another tag: %v, %d", round, err, got)
		}
	}
}

// Receives that are started and not waited for keep the order as well, whether their message is
// kept, announced, in the ring, or for one that was posted before.
func TestReceivedNowKeepsOrder(t *testing.T) {
	es, _ := together(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	send := func(tag int, b byte) {
		if err := es[0].Send(ctx, everyone{}, 0, 1, tag, []byte{b}, Standard); err != nil {
			t.Fatal(err)
		}
	}
	got := make([]byte, 2*zeroCopyFrom)
	now := 0
	for round := range 3 * directsPerSweep {
		want := func(what string, tag, bytes int, b byte) {
			t.Helper()
			clear(got[:1])
			r, ok := es[1].RecvNow(everyone{}, 0, 0, tag, got)
			if ok {
				now++
			} else {
				var h Handle
				es[1].StartRecv(&h, everyone{}, 0, 0, tag, got)
				var err error
				if r, err = h.Wait(ctx); err != nil {
					t.Fatal(err)
				}
			}
			if r.Tag != 5 || r.Source != 0 || r.Bytes != uint64(bytes) || got[0] != b {
				t.Fatalf("round %d, %s (now: %v): %+v, %d", round, what, ok, r, got[0])
			}
		}
		send(5, 1)
		has(t, es[1], 1)
		send(5, 2)
		want("the one that is kept", AnyTag, 1, 1)
		want("the one in the ring", 5, 1, 2)

		var posted [2]Handle
		var early [2][1]byte
		es[1].StartRecv(&posted[0], everyone{}, 0, 0, AnyTag, early[0][:])
		es[1].StartRecv(&posted[1], everyone{}, 0, AnySource, 5, early[1][:])
		send(5, 3)
		send(5, 4)
		send(5, 5)
		want("the one behind those of posted receives", 5, 1, 5)
		for i := range posted {
			if _, err := posted[i].Wait(ctx); err != nil || early[i][0] != byte(3+i) {
				t.Fatalf("round %d: posted receive %d: %v, %d", round, i, err, early[i])
			}
		}

		var large Handle
		b := make([]byte, 2*zeroCopyFrom)
		b[0] = 6
		es[0].StartSend(&large, everyone{}, 0, 1, 5, b, Standard, false)
		has(t, es[1], 1)
		send(5, 7)
		want("the one that is announced", 5, len(b), 6)
		want("the one behind it", AnyTag, 1, 7)
		if _, err := large.Wait(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if now == 0 {
		t.Error("no message was received from the ring")
	}
}

// What is not for the receive at once goes its usual way.
func TestDirectLeavesTheRest(t *testing.T) {
	es, _ := together(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	sent := make(chan error, 1)
	for i, b := range [][]byte{nil, make([]byte, eagerShared), make([]byte, eagerShared+1), make([]byte, 2*zeroCopyFrom)} {
		for _, mode := range []Mode{Standard, Synchronous, Buffered} {
			numbered(b, i)
			go func() { sent <- es[0].Send(ctx, everyone{}, 0, 1, i, b, mode) }() // ends with the receive
			got := make([]byte, len(b))
			r, err := es[1].Recv(ctx, everyone{}, 0, 0, i, got)
			if err = errors.Join(err, <-sent); err != nil || r.Tag != i || r.Bytes != uint64(len(b)) || string(got) != string(b) {
				t.Fatalf("message %d in mode %d: %+v, %v", i, mode, r, err)
			}
		}
	}
	go func() { sent <- es[0].Send(ctx, everyone{}, 0, 1, 9, []byte("long"), Standard) }() // ends by itself
	if _, err := es[1].Recv(ctx, everyone{}, 0, 0, 9, make([]byte, 3)); !errors.Is(err, ErrTruncate) {
		t.Errorf("a message that is too long: %v", err)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := es[1].Recv(gone, everyone{}, 0, 0, 9, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a receive that is given up: %v", err)
	}
	if len(es[1].UnexpectedMessages()) > 0 {
		t.Errorf("left: %+v", es[1].UnexpectedMessages())
	}
}

// satisfied is of one who has what he waited for, or has not.
type satisfied bool

func (s satisfied) isMet() bool { return bool(s) }

func (s satisfied) changed() <-chan struct{} { return nil }

// Who has what he waited for leaves in the ring what finds no receive, and takes the rest.
func TestEarlyMessagesStayInTheRing(t *testing.T) {
	es, _ := together(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var first Request
	es[1].Irecv(&first, everyone{}, 0, 0, 0, make([]byte, 3))
	e := es[1]
	e.mu.Lock()
	for e.rings.polling { // by the attendant, who looks now and then
		e.rings.free.Wait()
	}
	e.rings.takeToken()
	defer e.mu.Unlock()
	defer e.rings.releaseToken()
	for tag := range 3 {
		if err := es[0].Send(ctx, everyone{}, 0, 1, tag, fmt.Append(nil, tag), Standard); err != nil {
			t.Fatal(err)
		}
	}
	kept := func() (n int) {
		for _, m := range []int{1, 2} {
			if _, found := e.find(0, 0, m, false); found {
				n++
			}
		}
		return n
	}
	p := e.peers[0]
	if !p.receive(satisfied(true)) || first.State != complete || kept() != 0 {
		t.Errorf("with all that is wanted: state %d, %d messages were kept", first.State, kept())
	}
	if !p.receive(satisfied(false)) || kept() != 2 {
		t.Errorf("with something wanted: %d messages were kept", kept())
	}
	if p.receive(satisfied(false)) {
		t.Error("there was more in the ring")
	}
}
