package measure

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/examples/tally"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// plan is what a run measures, the same on every rank.
type plan struct {
	from, to int // ranks; from drives, to echoes
	reps     int // round trips a size, at least 1
	sizes    []int
}

// figure is the outcome for one message size.
type figure struct {
	bytes       int
	median, min time.Duration // of a round trip
	technique   string        // of the link; several, joined by "+", if it changed meanwhile
}

// bytesPerSecond counts one way: a message takes half a round trip.
func (f figure) bytesPerSecond() float64 { return 2 * float64(f.bytes) / f.median.Seconds() }

// outcome is complete at rank from and empty elsewhere.
type outcome struct {
	first   time.Duration // the first round trip, which sets up the link
	figures []figure
}

const tag = 1

// measure plays ping-pong between the two ranks of the plan while the others
// wait at a barrier. Messages that come back changed are an error.
func measure(ctx context.Context, comm *mpilib.Comm, p plan) (outcome, error) {
	if err := p.check(comm.Size()); err != nil {
		return outcome{}, err
	}
	var out outcome
	var err error
	switch comm.Rank() {
	case p.from:
		out, err = drive(ctx, comm, p)
	case p.to:
		err = echo(ctx, comm, p)
	}
	if err != nil {
		return outcome{}, err
	}
	return out, mpilib.Barrier(ctx, comm)
}

func (p plan) check(ranks int) error {
	switch {
	case p.from < 0 || p.from >= ranks || p.to < 0 || p.to >= ranks:
		return fmt.Errorf("ranks %d and %d of a job of %d", p.from, p.to, ranks)
	case p.from == p.to:
		return fmt.Errorf("rank %d needs another rank to play with; start at least two", p.from)
	case p.reps < 1:
		return fmt.Errorf("%d repetitions, want at least 1", p.reps)
	}
	return nil
}

func drive(ctx context.Context, comm *mpilib.Comm, p plan) (outcome, error) {
	var out outcome
	first, err := roundTrip(ctx, comm, p.to, nil, nil)
	if err != nil {
		return out, fmt.Errorf("first message: %w", err)
	}
	some, err := tally.Decided(ctx, comm, []time.Duration{first})
	if err != nil {
		return out, err
	}
	out.first = some[0]
	for _, size := range p.sizes {
		ping, pong := make([]byte, size), make([]byte, size)
		times := make([]time.Duration, p.reps)
		begun := ""
		for i := -1; i < p.reps; i++ { // the first is to warm up
			for j := range ping {
				ping[j] = byte(i + j + j>>8)
			}
			t, err := roundTrip(ctx, comm, p.to, ping, pong)
			if err != nil {
				return out, fmt.Errorf("%d bytes: %w", size, err)
			}
			if !bytes.Equal(ping, pong) {
				return out, fmt.Errorf("%d bytes came back from rank %d changed", size, p.to)
			}
			if i < 0 {
				begun = technique(comm, p.to)
				continue
			}
			times[i] = t
		}
		used := technique(comm, p.to)
		if used != begun {
			used = begun + "+" + used
		}
		said, err := comm.World().Decide(ctx, func() []byte { return []byte(used) }) // replicas have links of their own
		if err != nil {
			return out, err
		}
		slices.Sort(times)
		some, err := tally.Decided(ctx, comm, []time.Duration{times[len(times)/2], times[0]})
		if err != nil {
			return out, err
		}
		out.figures = append(out.figures, figure{bytes: size, median: some[0], min: some[1], technique: string(said)})
	}
	return out, nil
}

// technique returns that of the link with a peer, as it is now.
func technique(comm *mpilib.Comm, peer int) string {
	var all []string
	for _, l := range comm.World().Links() {
		if l.Peer == peer && !slices.Contains(all, l.Technique) { // of several replicas, several
			all = append(all, l.Technique)
		}
	}
	return strings.Join(all, "+")
}

func roundTrip(ctx context.Context, comm *mpilib.Comm, peer int, ping, pong []byte) (time.Duration, error) {
	start := time.Now()
	if err := mpilib.Send(ctx, comm, ping, peer, tag); err != nil {
		return 0, err
	}
	if _, err := mpilib.Recv(ctx, comm, pong, peer, tag); err != nil {
		return 0, err
	}
	return time.Since(start), nil
}

func echo(ctx context.Context, comm *mpilib.Comm, p plan) error {
	bounce := func(buf []byte) error {
		if _, err := mpilib.Recv(ctx, comm, buf, p.from, tag); err != nil {
			return fmt.Errorf("%d bytes: %w", len(buf), err)
		}
		if err := mpilib.Send(ctx, comm, buf, p.from, tag); err != nil {
			return fmt.Errorf("%d bytes: %w", len(buf), err)
		}
		return nil
	}
	if err := bounce(nil); err != nil {
		return err
	}
	for _, size := range p.sizes {
		buf := make([]byte, size)
		for range p.reps + 1 {
			if err := bounce(buf); err != nil {
				return err
			}
		}
	}
	return nil
}

// sizesUpTo is 0, 1, then powers of four up to limit.
func sizesUpTo(limit int) []int {
	sizes := []int{0}
	for n := 1; n <= limit && n > 0; n *= 4 {
		sizes = append(sizes, n)
	}
	return sizes
}
