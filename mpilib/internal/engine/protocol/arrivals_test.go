package protocol

import (
	"bytes"
	"errors"
	"testing"

	"github.com/isthmus-grid/isthmus/mpilib/internal/replica"
	"github.com/isthmus-grid/isthmus/wire"
)

// replicated returns the core of process 0 of two ranks with two replicas each, and its peers.
func replicated() (*Core, *replica.Process, []*Peer) {
	layout := replica.Layout{Ranks: 2, Replicas: 2}
	process := replica.New(replica.Config{Layout: layout, Table: replica.Parallel})
	c, peers := new(Core), make([]*Peer, layout.Ranks*layout.Replicas)
	c.Init(Config{Ranks: layout.Ranks, Unexpected: 1 << 20, Replica: process}, len(peers))
	for q := 1; q < len(peers); q++ {
		peers[q] = new(Peer)
		c.AddPeer(peers[q], q)
	}
	return c, process, peers
}

// rts announces message 1.
func rts(size int) wire.Envelope {
	return wire.Envelope{Kind: wire.EnvelopeRTS, ID: 1, Tag: 5, Length: uint64(size)}
}

// announce has a peer announce message 1 and send its head.
func announce(t *testing.T, p *Peer, size int, head []byte) {
	t.Helper()
	if err := p.RTSReceived(rts(size), ExposedBuffer{}); err != nil {
		t.Fatal(err)
	}
	arrive(t, p, wire.EnvelopeHead, head)
}

// arrive has bytes of message 1 arrive.
func arrive(t *testing.T, p *Peer, flags uint8, b []byte) {
	t.Helper()
	if err := p.DataReceived(wire.Envelope{Kind: wire.EnvelopeData, Flags: flags, ID: 1, Length: uint64(len(b))}); err != nil {
		t.Fatal(err)
	}
	copy(p.In.Into, b)
	p.In.Left = 0
	p.Arrived()
}

// The process that has announced a message is lost while a receive takes the bytes that are here. The receive gets the message
// from the other replica, and its buffer is nobody else's meanwhile.
func TestSenderLostWhileCopied(t *testing.T) {
	for name, have := range map[string]int{"some bytes are here": 2 * maxCopied, "all bytes are here": 3 * maxCopied} {
		t.Run(name, func(t *testing.T) {
			c, process, peers := replicated()
			message := bytes.Repeat([]byte("message"), 3*maxCopied/7+1)[:3*maxCopied]
			announce(t, peers[1], len(message), message[:have])

			lost := false
			lose := func() {
				if !lost {
					lost = true
					peers[1].Lost(errLost, false)
					process.Fail(1)
				}
			}
			var r Request
			buf := make([]byte, len(message))
			r.Begin(&r, 0, 1, 5, buf)
			c.Receive(&r)
			for c.HasEffects() {
				for _, f := range c.Effects(nil) {
					if f.Kind == Copy { // without the lock: others may do anything
						lose()
						copy(f.Request.Buf, f.Message.Data)
						c.UnexpectedCopied(f.Request, f.Message)
					}
				}
			}
			if lose(); have == len(message) {
				if r.State != Completed || r.Err != nil || !bytes.Equal(buf, message) {
					t.Fatalf("the receive is in state %d, with %v; it has the bytes: %t", r.State, r.Err, bytes.Equal(buf, message))
				}
				return
			}
			if r.State != Moving {
				t.Fatalf("the receive is in state %d, with %v, though the other replica is alive", r.State, r.Err)
			}
			if err := process.Receive(3, replica.Message{Kind: replica.Query, Failed: []int{1}}); err != nil { // it serves in the other's place
				t.Fatal(err)
			}
			if err := peers[3].RTSReceived(rts(len(message)), ExposedBuffer{}); err != nil {
				t.Fatal(err)
			}
			arrive(t, peers[3], 0, message)
			if r.State != Completed || r.Err != nil || !bytes.Equal(buf, message) {
				t.Errorf("the receive is in state %d, with %v; it has the bytes: %t", r.State, r.Err, bytes.Equal(buf, message))
			}
		})
	}
}

// No process sends an eager message of a rank with replicas that has an identifier.
func TestEagerWithID(t *testing.T) {
	_, _, peers := replicated()
	if err := peers[1].EagerReceived(wire.Envelope{Kind: wire.EnvelopeEager, ID: 1}); !errors.Is(err, wire.ErrMalformed) {
		t.Error(err)
	}
}

// A receive that is given up while the bytes that are here are copied ends with that, and does not wait for the other bytes.
func TestGivenUpWhileCopied(t *testing.T) {
	var c Core
	var p Peer
	c.Init(Config{Unexpected: 1 << 20}, 2)
	c.AddPeer(&p, 1)
	announce(t, &p, 3*maxCopied, make([]byte, 2*maxCopied))
	var r Request
	r.Begin(&r, 0, 1, 5, make([]byte, 3*maxCopied))
	c.Receive(&r)
	list := c.Effects(nil)
	if len(list) == 0 || list[len(list)-1].Kind != Copy {
		t.Fatalf("effects %+v, want a copy at the end", list)
	}
	if r.GiveUp = errGivenUp; p.StopReceive(&r) {
		t.Error("it is complete while its bytes are copied")
	}
	c.UnexpectedCopied(&r, list[len(list)-1].Message)
	if r.State != Completed || r.Err != errGivenUp {
		t.Errorf("it is in state %d, with %v", r.State, r.Err)
	}
	arrive(t, &p, 0, make([]byte, maxCopied)) // what it has asked for
	if n := len(p.transfers); n != 0 {
		t.Errorf("%d transfers are left", n)
	}
}

// A peer is lost while the last bytes of a part of a message are read. No other part comes: the receive ends with the peer.
func TestLostBetweenParts(t *testing.T) {
	for name, last := range map[string]bool{"more was to come": false, "that was all": true} {
		t.Run(name, func(t *testing.T) {
			var c Core
			var p Peer
			c.Init(Config{Unexpected: 1 << 20}, 2)
			c.AddPeer(&p, 1)
			var r Request
			r.Begin(nil, 0, 1, 5, make([]byte, 10))
			c.Receive(&r)
			part := uint64(4)
			if last {
				part = 10
			}
			if err := errors.Join(p.RTSReceived(rts(10), ExposedBuffer{}), p.DataReceived(wire.Envelope{Kind: wire.EnvelopeData, ID: 1, Length: part})); err != nil {
				t.Fatal(err)
			}
			lost := errors.New("lost")
			p.Lost(lost, true)
			if r.State == Completed {
				t.Fatal("it is complete while its buffer is read into")
			}
			p.In.Left = 0
			p.Arrived()
			p.ReadEnded()
			if r.State != Completed || last != (r.Err == nil) {
				t.Errorf("state %d, %v", r.State, r.Err)
			}
		})
	}
}
