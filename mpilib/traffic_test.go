package mpilib

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// Every rank sends messages of all sizes in all modes to every rank, itself included, and receives
// them by all kinds of calls. A message contains its source, destination and tag, and its number
// among those with that tag, so that the test detects lost, duplicated, changed and overtaking
// messages (MPI-4.1, section 3.5).
func TestTraffic(t *testing.T) {
	for _, n := range either([]int{1, 4}, []int{1, 2, 3, 5}) {
		t.Run(fmt.Sprintf("p=%d", n), func(t *testing.T) {
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			anyWay(t, n, func(ctx context.Context, c *Comm) error {
				sent := make(chan error, 1)
				go func() { sent <- sendTraffic(ctx, c, rand.New(rand.NewPCG(seed, uint64(c.Rank())))) }()
				err := receiveTraffic(ctx, c, rand.New(rand.NewPCG(seed+1, uint64(c.Rank()))))
				return errors.Join(err, <-sent)
			}, WithUnexpectedLimit(256<<10))
		})
	}
}

const trafficTags = 3

// trafficEach returns the number of messages that each rank sends to each rank.
func trafficEach() int { return often(160) }

// trafficSize returns a random size of any order of magnitude up to 1 MiB, with room for a header.
func trafficSize(rng *rand.Rand) int { return 16 + rng.IntN(1<<(1+rng.IntN(20))) }

func trafficMessage(buf []byte, from, to, tag, count int) {
	for i, v := range []int{from, to, tag, count} {
		binary.LittleEndian.PutUint32(buf[4*i:], uint32(v))
	}
	for i := 16; i < len(buf); i++ {
		buf[i] = byte(i*7 + from + 3*to + 5*tag + count)
	}
}

func sendTraffic(ctx context.Context, c *Comm, rng *rand.Rand) error {
	counts := map[[2]int]int{}
	var open []*Request
	for range trafficEach() * c.Size() {
		to, tag := rng.IntN(c.Size()), rng.IntN(trafficTags)
		for counts[[2]int{to, -1}] == trafficEach() {
			to = (to + 1) % c.Size()
		}
		counts[[2]int{to, -1}]++
		buf := make([]byte, trafficSize(rng))
		trafficMessage(buf, c.Rank(), to, tag, counts[[2]int{to, tag}])
		counts[[2]int{to, tag}]++
		switch rng.IntN(6) {
		case 0:
			open = append(open, Issend(c, buf, to, tag))
		case 1:
			if err := Bsend(ctx, c, buf, to, tag); err != nil {
				return err
			}
		case 2:
			if err := Send(ctx, c, buf, to, tag); err != nil {
				return err
			}
		default:
			open = append(open, Isend(c, buf, to, tag))
		}
		if rng.IntN(20) == 0 {
			if i, _, err := Waitany(ctx, open...); err != nil {
				return err
			} else if i != Undefined {
				open[i] = nil
			}
		}
	}
	for _, r := range open {
		if r != nil {
			if _, err := r.Wait(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

func receiveTraffic(ctx context.Context, c *Comm, rng *rand.Rand) error {
	counts := map[[2]int]int{}
	for i := range trafficEach() * c.Size() {
		buf, st, err := receiveSome(ctx, c, rng)
		if err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
		key := [2]int{st.Source, st.Tag}
		want := make([]byte, st.Bytes)
		trafficMessage(want, st.Source, c.Rank(), st.Tag, counts[key])
		counts[key]++
		for i := range want {
			if buf[i] != want[i] {
				return fmt.Errorf("message %d of tag %d from rank %d: byte %d is %d and not %d (header % x, want % x)", counts[key], st.Tag, st.Source, i, buf[i], want[i], buf[:16], want[:16])
			}
		}
	}
	return nil
}

// receiveSome receives the next message by one of the kinds of calls.
func receiveSome(ctx context.Context, c *Comm, rng *rand.Rand) ([]byte, Status, error) {
	large := func() []byte { return make([]byte, 16+1<<20) }
	switch rng.IntN(4) {
	case 0:
		m, err := c.Mprobe(ctx, AnySource, AnyTag)
		if err != nil {
			return nil, Status{}, err
		}
		buf := make([]byte, m.Status.Bytes)
		st, err := MRecv(ctx, m, buf)
		return buf, st, err
	case 1:
		st, err := c.Probe(ctx, AnySource, AnyTag)
		if err != nil {
			return nil, st, err
		}
		buf := make([]byte, st.Bytes)
		st, err = Recv(ctx, c, buf, st.Source, st.Tag)
		return buf, st, err
	case 2:
		buf := large()
		r := Irecv(c, buf, AnySource, AnyTag)
		for {
			if st, done, err := r.Test(); done {
				return buf, st, err
			}
			select {
			case <-r.core.Finished():
			case <-ctx.Done():
				return nil, Status{}, ctx.Err()
			}
		}
	}
	buf := large()
	st, err := Recv(ctx, c, buf, AnySource, AnyTag)
	return buf, st, err
}
