package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

const (
	// soakPause is the pause between two blocks on a nearly idle link.
	soakPause = time.Second
	// maxMoves is how often a link may change its carrier in quiet times: once to the best, and
	// once more for a path that really became better.
	maxMoves = 2
	// soakSlack is the time allowed for building a lab and ending a stream.
	soakSlack = 2 * time.Minute
)

// A Soak is the outcome of a quiet period.
type Soak struct {
	Technique   string   `json:"technique"`
	Seconds     float64  `json:"seconds"`
	Bytes       uint64   `json:"bytes"`
	HashOK      bool     `json:"hash_ok"`
	StallMaxMS  float64  `json:"stall_max_ms"` // a block is sent each second
	Moves       []Move   `json:"moves"`        // from one carrier to another
	End         string   `json:"end"`          // the path of the last bytes
	Carriers    int      `json:"carriers"`     // carriers that the stream used
	Connections int      `json:"connections"`  // carriers that the receiver got
	Faults      []string `json:"faults"`
	OK          bool     `json:"ok"`
}

// A Move is one change of the carrier.
type Move struct {
	Seconds float64 `json:"seconds"` // since the start
	To      string  `json:"to"`
}

// judge fills Faults and OK.
func (s *Soak) judge() {
	s.Faults = []string{}
	if len(s.Moves) > maxMoves {
		s.Faults = append(s.Faults, fmt.Sprintf("it changed its carrier %d times, at most %d are good", len(s.Moves), maxMoves))
	}
	if !s.HashOK {
		s.Faults = append(s.Faults, "what arrived is not what was sent")
	}
	s.OK = len(s.Faults) == 0
}

// RunSoak leaves a link of the first of Techniques nearly idle for a time, and prints the outcome.
// It must run in a process that went through lab.Enter. The error names the target that was missed.
func RunSoak(ctx context.Context, o Options, d time.Duration) (err error) {
	if err := o.Check(); err != nil {
		return err
	}
	ws, _, err := o.chosen()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, d+soakSlack, fmt.Errorf("not done %v after %v", soakSlack, d))
	defer cancel()
	g, down, err := o.build(ctx, ws[0], false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, down()) }()
	p, err := startPair(ctx, g, o.Program("break-end"), true, soakPause)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.kill()) }()
	s, err := o.soak(ctx, ws[0], p, d)
	if err != nil {
		return err
	}
	if err := s.print(o.Out, o.JSON); err != nil || s.OK {
		return err
	}
	return errors.New("break: " + s.Faults[0])
}

// soak watches a pair for a time.
func (o Options) soak(ctx context.Context, w way, p *pair, d time.Duration) (*Soak, error) {
	if err := p.linked(ctx); err != nil {
		return nil, err
	}
	start := time.Now()
	if err := o.watch(ctx, p, start, d); err != nil {
		return nil, err
	}
	line := p.timeline()
	sent, got, err := p.finish(ctx)
	if err != nil {
		return nil, err
	}
	last := line.samples[len(line.samples)-1]
	end, _ := line.latest(last.At)
	s := &Soak{
		Technique: w.name, Seconds: last.At.Sub(start).Seconds(), Bytes: last.Bytes, HashOK: sent.Digest == got.Digest,
		Moves: []Move{}, End: end.State.Path, Carriers: line.used(), Connections: last.Connections,
	}
	if stall, ok := line.stall(start, last.At); ok {
		s.StallMaxMS = ms(stall.Length)
	}
	for _, m := range line.moves() {
		s.Moves = append(s.Moves, Move{m.At.Sub(start).Seconds(), m.State.Path})
	}
	s.judge()
	return s, nil
}

// watch waits for d, while the pair is well, and reports its state at intervals.
func (o Options) watch(ctx context.Context, p *pair, start time.Time, d time.Duration) error {
	for next := min(d, time.Minute); ; next = min(d, next+time.Minute) {
		err := p.ends[receiver].until(ctx, fmt.Sprintf("%v have passed", d), func(*process) bool { return time.Since(start) >= next })
		if err != nil {
			return err
		}
		line := p.timeline()
		now, _ := line.latest(time.Now())
		fmt.Fprintf(o.Err, "%v of %v: %d changes of the carrier, now %s\n", next, d, len(line.moves()), now.State.Path)
		if next == d {
			return nil
		}
	}
}

// print writes the outcome.
func (s *Soak) print(w io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(s)
	}
	fmt.Fprintf(w, "%s for %.0f s, nearly idle: %d changes of the carrier, of %d connections; longest silence %s; at last by %s\n",
		s.Technique, s.Seconds, len(s.Moves), s.Connections, seconds(s.StallMaxMS), s.End)
	for _, m := range s.Moves {
		fmt.Fprintf(w, "  after %.1f s: %s\n", m.Seconds, m.To)
	}
	return nil
}
