package engine

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/link"
	"github.com/isthmus-grid/isthmus/mpilib/internal/replica"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// replicated returns the engines of all processes of a job, with a link between every two.
func replicated(t *testing.T, ranks int, r Replication) []*Engine {
	t.Helper()
	engines := make([]*Engine, ranks*r.Replicas)
	connect := func(context.Context, int) error { return nil }
	for q := range engines {
		r.Replica = q / ranks
		r.InOrder = func(context uint32) bool { return context == 0 }
		engines[q] = New(Config{Rank: q % ranks, Size: ranks, Unexpected: 1 << 20, Replication: r, Connect: connect})
		t.Cleanup(engines[q].Close)
	}
	for q, e := range engines {
		for other := range q {
			mine, peer := sockets(t)
			e.Attach(&link.Link{Conn: bare(mine), Peer: overlay.ProcessName{Rank: uint32(other)}})
			engines[other].Attach(&link.Link{Conn: bare(peer), Peer: overlay.ProcessName{Rank: uint32(q)}})
		}
	}
	return engines
}

var pattern = func() []byte {
	b := make([]byte, 1<<20)
	rand.NewChaCha8([32]byte{}).Read(b)
	return b
}()

// contentLen is how many bytes a rank sends in a round, and maxContent the most.
func contentLen(rank, round int) int {
	sizes := []int{4, 0, 1000, 70_000, 200_000, 9, maxContent - 8}
	return 8 + sizes[(rank+round)%len(sizes)]
}

var maxContent = 8 + sweep(300_000, 600_000)

// content is what a rank sends in a round.
func content(rank, round int) []byte {
	b := make([]byte, contentLen(rank, round))
	binary.BigEndian.PutUint32(b, uint32(rank))
	binary.BigEndian.PutUint32(b[4:], uint32(round))
	copy(b[8:], pattern[rank*100+round:])
	return b
}

// isContent reports whether b is content(rank, round).
func isContent(b []byte, rank, round int) bool {
	return len(b) == contentLen(rank, round) && binary.BigEndian.Uint32(b) == uint32(rank) && binary.BigEndian.Uint32(b[4:]) == uint32(round) &&
		bytes.Equal(b[8:], pattern[rank*100+round:][:len(b)-8])
}

// rounds is a program of rounds: every rank sends to the next one, and to rank 0, which receives that from any source. It
// returns in which order rank 0 received them.
func rounds(ctx context.Context, e *Engine, total int, begun func(round int)) (order []int, err error) {
	n := e.Size()
	next, before := (e.Rank()+1)%n, (e.Rank()+n-1)%n
	memory, b := make([]byte, maxContent), make([]byte, maxContent) // the same in all rounds, so that a late write is noticed
	for round := range total {
		begun(round)
		var in, out Request
		buf, mine := memory[:contentLen(before, round)], content(e.Rank(), round)
		e.Irecv(&in, everyone{}, 0, before, 1, buf)
		mode := []Mode{Standard, Synchronous, Buffered}[round%3]
		e.Isend(&out, everyone{}, 0, next, 1, mine, mode, false)
		if _, err := in.Wait(ctx); err != nil {
			return nil, fmt.Errorf("round %d: %w", round, err)
		}
		if _, err := out.Wait(ctx); err != nil {
			return nil, fmt.Errorf("round %d: %w", round, err)
		}
		if !isContent(buf, before, round) {
			return nil, fmt.Errorf("round %d: other bytes from rank %d", round, before)
		}
		if e.Rank() != 0 {
			if err := e.Send(ctx, everyone{}, 0, 0, 2, mine, Standard); err != nil {
				return nil, err
			}
			continue
		}
		for range n - 1 {
			got, err := e.Recv(ctx, everyone{}, 0, AnySource, 2, b)
			if err != nil {
				return nil, err
			}
			sent := int(binary.BigEndian.Uint32(b[4:]))
			if !isContent(b[:got.Bytes], got.Source, sent) {
				return nil, fmt.Errorf("round %d: other bytes from rank %d", round, got.Source)
			}
			order = append(order, got.Source, sent)
		}
	}
	return order, e.Goodbye(ctx)
}

// A program runs to its end, and gets every message once, whatever replica of a rank dies at whatever moment.
func TestReplicas(t *testing.T) {
	const total = 12
	for seed := range uint64(sweep(6, 32)) {
		random := rand.New(rand.NewPCG(seed, 1))
		ranks, replicas := 2+random.IntN(2), 2+random.IntN(2)
		victim := random.IntN(ranks * replicas)
		deathRound := random.IntN(total)
		if seed == 0 {
			victim = -1
		}
		for _, table := range []replica.Table{replica.Parallel, replica.Primary} {
			t.Run(fmt.Sprintf("%v/%d ranks %d replicas/%d dies/%d", table, ranks, replicas, victim, seed), func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				engines := replicated(t, ranks, Replication{Replicas: replicas, Table: table})
				orders := make([][]int, len(engines))
				var all sync.WaitGroup
				for q, e := range engines {
					all.Go(func() {
						var dying sync.WaitGroup
						order, err := rounds(ctx, e, total, func(round int) {
							if q == victim && round == deathRound {
								dying.Go(e.Close)
							}
						})
						dying.Wait()
						e.Close()
						if q == victim {
							return
						}
						if err != nil {
							t.Errorf("process %d: %v", q, err)
							cancel()
						}
						orders[q] = order
					})
				}
				all.Wait()
				if t.Failed() {
					return
				}
				var first []int
				for q := 0; q < len(engines); q += ranks {
					switch {
					case q == victim:
					case first == nil:
						first = orders[q]
					case !slices.Equal(first, orders[q]):
						t.Errorf("replicas of rank 0 received in different orders: %v, %v", first, orders[q])
					}
				}
			})
		}
	}
}

// The last replica of a rank that dies is the rank's failure.
func TestLastReplicaFails(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	engines := replicated(t, 2, Replication{Replicas: 2})
	engines[1].Close()
	var r, out Request
	engines[0].Isend(&out, everyone{}, 0, 1, 6, []byte("hello"), Synchronous, false)
	engines[0].Irecv(&r, everyone{}, 0, 1, 5, make([]byte, 9))
	if err := engines[3].Send(ctx, everyone{}, 0, 0, 5, []byte("hello"), Standard); err != nil {
		t.Fatal(err)
	}
	if got, err := r.Wait(ctx); err != nil || got.Bytes != 5 || got.Source != 1 {
		t.Fatalf("from the other replica: %+v, %v", got, err)
	}
	engines[0].Irecv(&r, everyone{}, 0, 1, 5, make([]byte, 9))
	engines[3].Close()
	if _, err := r.Wait(ctx); !errors.Is(err, ErrProcFailed) {
		t.Errorf("from a rank that is lost: %v", err)
	}
	if _, err := out.Wait(ctx); !errors.Is(err, ErrProcFailed) {
		t.Errorf("to a rank that is lost, which has not received it: %v", err)
	}
	if dead := engines[0].Dead(); !slices.Equal(dead, []int{1}) {
		t.Errorf("failed ranks: %v", dead)
	}
}

// A synchronous send is complete once each living replica of its destination has received the message, whether a dead one had
// or not (MPI-4.1, section 3.4).
func TestSynchronous(t *testing.T) {
	for _, table := range []replica.Table{replica.Parallel, replica.Primary} {
		for _, dies := range []int{0, 1} {
			for _, received := range []bool{false, true} {
				for _, size := range []int{0, 9, maxContent} {
					t.Run(fmt.Sprintf("%v/replica %d dies/received %t/%d bytes", table, dies, received, size), func(t *testing.T) {
						ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
						defer cancel()
						engines := replicated(t, 2, Replication{Replicas: 2, Table: table})
						dead, living := engines[1+2*dies], engines[3-2*dies]
						senders := []*Engine{engines[0], engines[2]}
						var sends [2]Request
						for c, e := range senders {
							e.Isend(&sends[c], everyone{}, 0, 1, 5, pattern[:size], Synchronous, false)
						}
						if received {
							if _, err := dead.Recv(ctx, everyone{}, 0, 0, 5, make([]byte, size)); err != nil {
								t.Fatal(err)
							}
						}
						dead.Close()
						for _, e := range senders {
							awaitFailed(ctx, t, e, 1+2*dies)
						}
						// What the living one sends comes behind all that it has said of the other message.
						if err := living.Send(ctx, everyone{}, 0, 0, 6, []byte("hello"), Standard); err != nil {
							t.Fatal(err)
						}
						for c, e := range senders {
							if _, err := e.Recv(ctx, everyone{}, 0, 1, 6, make([]byte, 9)); err != nil {
								t.Fatal(err)
							}
							if sends[c].Done() {
								t.Errorf("replica %d: it is complete before the living replica has received it", c)
							}
						}
						b := make([]byte, size)
						if _, err := living.Recv(ctx, everyone{}, 0, 0, 5, b); err != nil || !bytes.Equal(b, pattern[:size]) {
							t.Errorf("the living replica receives with %v; all its bytes: %t", err, bytes.Equal(b, pattern[:size]))
						}
						for c := range sends {
							if _, err := sends[c].Wait(ctx); err != nil {
								t.Errorf("replica %d: %v", c, err)
							}
						}
					})
				}
			}
		}
	}
}

// awaitFailed waits until e knows that a process has failed.
func awaitFailed(ctx context.Context, t *testing.T, e *Engine, process int) {
	t.Helper()
	for failed := false; !failed; runtime.Gosched() {
		if ctx.Err() != nil {
			t.Fatalf("process %d is not known to have failed", process)
		}
		e.mu.Lock()
		failed = e.peers[process].proto.Failed != nil
		e.mu.Unlock()
	}
}

// What one replica decides the others get.
func TestPoint(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	engines := replicated(t, 1, Replication{Replicas: 3})
	got := make([]string, len(engines))
	var all sync.WaitGroup
	for q, e := range engines {
		all.Go(func() {
			for i := range 50 {
				if q == 0 && i == 20 {
					e.Close()
					return
				}
				s, err := e.Point(ctx, 1, func() string { return fmt.Sprint(q) })
				if err != nil {
					t.Errorf("process %d: %v", q, err)
				}
				got[q] += s
			}
			if err := e.Goodbye(ctx); err != nil {
				t.Error(err)
			}
			e.Close()
		})
	}
	all.Wait()
	if got[1] != got[2] || len(got[1]) != 50 {
		t.Errorf("%s\n%s", got[1], got[2])
	}
}

// A replica that waits for another one's decision notices that that has died, or cannot be reached, though they had nothing to
// say to each other before.
func TestUnlinkedLeader(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	dead := errors.New("nobody is there")
	wait := map[string]func(*Engine) error{
		"point": func(e *Engine) error {
			_, err := e.Point(ctx, 1, func() string { return "" })
			return err
		},
		"receive": func(e *Engine) error {
			var r Request
			e.Irecv(&r, everyone{}, 0, AnySource, 1, make([]byte, 1))
			if err := e.Send(ctx, everyone{}, 0, 0, 1, []byte{1}, Standard); err != nil {
				return err
			}
			_, err := r.Wait(ctx)
			return err
		},
	}
	for name, f := range wait {
		for _, reported := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, reported %t", name, reported), func(t *testing.T) {
				var e *Engine
				e = New(Config{Rank: 0, Size: 1, Unexpected: 1 << 20, Replication: Replication{Replica: 1, Replicas: 2},
					Connect: func(_ context.Context, process int) error {
						if reported {
							e.MarkFailed(process, dead)
						}
						return dead
					}})
				t.Cleanup(e.Close)
				if err := f(e); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// A Goodbye that waits for another replica ends with the engine.
func TestCloseEndsGoodbye(t *testing.T) {
	engines := replicated(t, 1, Replication{Replicas: 2})
	ended := make(chan error)
	e := engines[0]
	go func() { ended <- e.Goodbye(t.Context()) }()
	for waits := false; !waits; runtime.Gosched() {
		e.mu.Lock()
		waits = e.replicas.ending
		e.mu.Unlock()
	}
	e.Close()
	if err := <-ended; err == nil {
		t.Error("it was not at its end, for the other replica goes on")
	}
}

// A process that the others take for failed is told so when it next hears from them; the others go on without it.
func TestExpelled(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	expelled := make(chan struct{}, 8)
	engines := replicated(t, 2, Replication{Replicas: 2, Expelled: func() { expelled <- struct{}{} }})
	for _, e := range engines[1:] {
		e.MarkFailed(0, errors.New("it is silent"))
	}
	select {
	case <-expelled:
	case <-ctx.Done():
		t.Fatal("the process was not expelled")
	}
	if err := engines[0].Send(ctx, everyone{}, 0, 1, 5, []byte("hello"), Standard); !errors.Is(err, ErrProcFailed) {
		t.Errorf("a process that is expelled sends: %v", err)
	}
	var all sync.WaitGroup
	for q := range 2 { // the replicas of rank 1 hear from the other replica of rank 0
		all.Go(func() {
			if got, err := engines[1+2*q].Recv(ctx, everyone{}, 0, 0, 5, make([]byte, 9)); err != nil || got.Bytes != 5 {
				t.Errorf("replica %d received %+v, %v", q, got, err)
			}
		})
	}
	if err := engines[2].Send(ctx, everyone{}, 0, 1, 5, []byte("hello"), Standard); err != nil {
		t.Error(err)
	}
	all.Wait()
	if n := len(expelled); n > 0 {
		t.Errorf("expelled %d times more", n)
	}
}

// What another process says last that it has received is compared with what was sent, though this process has said goodbye.
func TestGoodbyeCompares(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	mine, peer := sockets(t)
	e := New(Config{Rank: 0, Size: 2, Replication: Replication{Replicas: 2, Replica: 1}})
	t.Cleanup(func() { peer.Close(); e.Close() })
	e.MarkFailed(0, errors.New("it is dead")) // the other replica of this rank
	e.MarkFailed(3, errors.New("it is dead"))
	e.Attach(&link.Link{Conn: bare(mine), Peer: overlay.ProcessName{Rank: 1}})
	bye := make(chan error, 1)
	go func() { bye <- e.Goodbye(ctx) }()
	for _, dead := range []uint32{0, 3} {
		expect(t, peer, wire.Envelope{Kind: wire.EnvelopeFailed, ID: dead})
	}
	expect(t, peer, wire.Envelope{Kind: wire.EnvelopeGoodbye})
	ack := replica.Message{Kind: replica.Ack, Acks: []replica.AckEntry{{Context: 4, Tag: 7, Count: 1, Digest: 9}}}.Append(nil)
	say(t, peer, wire.Envelope{Kind: wire.EnvelopeReplica, Length: uint64(len(ack))}, ack...)
	say(t, peer, wire.Envelope{Kind: wire.EnvelopeConfirm})
	if err := <-bye; err == nil || !strings.Contains(err.Error(), "replicas 1 and 0 differ, in messages to rank 1: the other sent more") {
		t.Errorf("%v, and the dead replica has sent something that this one has not", err)
	}
	for _, closed := range []bool{false, true} {
		if closed {
			e.Close()
		}
		for process, want := range map[uint32]wire.Envelope{
			1: {Kind: wire.EnvelopeGoodbye},
			3: {Kind: wire.EnvelopeFailed, ID: 3}, // which lives, and must not take this one for an equal
		} {
			mine, late := sockets(t)
			defer late.Close()
			e.Attach(&link.Link{Conn: bare(mine), Peer: overlay.ProcessName{Rank: process}})
			expect(t, late, want)
		}
	}
}
