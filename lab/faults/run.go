package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/internal/sleep"
	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/lab/wan"
)

const (
	// trickle is the pause between blocks after the stream, while waiting for the path.
	trickle = 10 * time.Millisecond
	// calm is how long the stream must have used the best technique.
	calm = 2 * time.Second
	// starts is the maximum number of pairs tried until one is on the best technique, each within
	// onBest and onBestRTTs: a relay may win a race that it should lose.
	starts     = 3
	onBest     = 3 * time.Second
	onBestRTTs = 20
	// cellSlack is the time allowed for a cell besides its stream and its waiting, and slowest the
	// rate of the stream on a busy machine, in bit/s.
	cellSlack = 3 * time.Minute
	slowest   = 50e6
)

// bound returns how long a cell may take.
func (o Options) bound() time.Duration {
	rate := float64(slowest)
	if o.Rate > 0 {
		rate = min(rate, float64(o.Rate)/2)
	}
	stream := time.Duration(float64(o.Size) * 8 / rate * float64(time.Second))
	return stream + o.Away + returnBound + cellSlack
}

// build makes the way's lab, with one or two uplinks at the asker's site, and a whole grid in it.
func (o Options) build(ctx context.Context, w way, multihomed bool) (g *grid.Grid, down func() error, err error) {
	spec := lab.Spec{WAN: lab.WAN{Default: wan.Shape{Delay: o.RTT / 2, Rate: o.Rate}}, Sites: w.sites(multihomed)}
	return grid.Up(ctx, spec, grid.Config{
		Binary: func(daemon string) []string { return o.Program("isthmus", daemon) }, Broker: brokerHost, Proxies: []string{proxy1, proxy2},
		// Sites that measure themselves send packets of their own.
		Settings: map[string]map[string]any{"frontal": {"measure": "0s"}},
		Profile:  w.profile,
	})
}

// cell breaks one link of a way by one cut. Errors are recorded in the cell.
func (o Options) cell(ctx context.Context, w way, k cut) Cell {
	c := Cell{
		Technique: w.name, Cut: k.name, Hit: hitNames[k.hits(w)], OtherPath: k.spares(w),
		want: o.Size, rtt: o.RTT, best: w.technique.String(),
	}
	ctx, cancel := context.WithTimeoutCause(ctx, o.bound(), fmt.Errorf("not done after %v", o.bound()))
	defer cancel()
	logs, err := o.try(ctx, w, k, &c)
	if err != nil {
		c.Error = err.Error()
	}
	if c.judge(); !c.OK {
		if err := o.keep(logs, w.name+"-"+k.name); err != nil {
			c.Faults = append(c.Faults, err.Error())
		}
	}
	return c
}

// try fills a cell in a lab of its own and returns the daemons' logs.
func (o Options) try(ctx context.Context, w way, k cut, c *Cell) (logs map[string]string, err error) {
	g, down, err := o.build(ctx, w, k.multihomed)
	if err != nil {
		return nil, err
	}
	t := &trial{Options: o, cell: c, cut: k, site: site{way: w, lab: g.Lab, grid: g}}
	err = t.run(ctx)
	logs = logsOf(g)
	return logs, errors.Join(err, down())
}

// logsOf returns the log of each daemon of a grid.
func logsOf(g *grid.Grid) map[string]string {
	logs := map[string]string{}
	for _, d := range g.Daemons() {
		logs[d.Name] = d.Log()
	}
	return logs
}

// keep writes the logs of a cell to files.
func (o Options) keep(logs map[string]string, cell string) error {
	if o.Logs == "" {
		return nil
	}
	dir := filepath.Join(o.Logs, cell)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var errs []error
	for name, text := range logs {
		file := strings.NewReplacer(" ", "-", "/", "-").Replace(name) + ".log"
		errs = append(errs, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644))
	}
	return errors.Join(errs...)
}

// A trial fills one cell.
type trial struct {
	Options
	cell *Cell
	cut  cut
	site site
	pair *pair

	started  time.Time // of the stream
	cutAt    time.Time
	returned time.Time // when the path existed again
}

func (t *trial) run(ctx context.Context) (err error) {
	if t.pair, err = t.startOnBest(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.pair.kill()) }()
	if err := t.half(ctx); err != nil {
		return err
	}
	if err := t.breakIt(ctx); err != nil {
		return err
	}
	if err := t.settle(ctx); err != nil {
		return err
	}
	if err := t.checkIdle(ctx); err != nil {
		return err
	}
	line := t.pair.timeline()
	sent, got, err := t.pair.finish(ctx)
	if err != nil {
		return err
	}
	t.tell(line, sent, got)
	return nil
}

// startOnBest starts a pair whose stream uses the best technique.
func (t *trial) startOnBest(ctx context.Context) (*pair, error) {
	wait := onBest + onBestRTTs*t.RTT
	for try := 1; ; try++ {
		p, err := startPair(ctx, t.site.grid, t.Program("break-end"), false, trickle)
		if err != nil {
			return nil, err
		}
		t.started = time.Now()
		if err := p.linked(ctx); err != nil {
			return nil, errors.Join(err, p.kill())
		}
		by := ""
		soon, cancel := context.WithTimeout(ctx, wait)
		err = p.ends[receiver].until(soon, "the stream flows", func(e *process) bool {
			s, ok := e.line.latest(time.Now())
			by = s.Technique.String()
			return ok && s.Technique == t.site.way.technique
		})
		late := soon.Err() != nil
		cancel()
		if err == nil {
			return p, nil
		}
		err = errors.Join(err, p.kill())
		if !late || ctx.Err() != nil || try == starts {
			return nil, fmt.Errorf("the link is not on %v after %v, but on %s; %d pairs of processes were tried: %w", t.site.way.technique, wait, by, try, err)
		}
	}
}

// half waits until half of the stream has arrived.
func (t *trial) half(ctx context.Context) error {
	return t.pair.ends[receiver].until(ctx, "half of the stream is there", func(e *process) bool { return e.latest.Bytes >= t.Size/2 })
}

// breakIt cuts, lets the sender send the second half, and restores the path.
func (t *trial) breakIt(ctx context.Context) error {
	s := t.pair.ends[sender]
	s.mu.Lock()
	reports := s.latest.Carriers
	s.mu.Unlock()
	line := t.pair.timeline()
	before, ok := line.latest(time.Now())
	if !ok {
		return errors.New("no carrier before the cut")
	}
	t.site.used = counterpart(reports, before.State)
	t.cutAt = time.Now()
	undo, err := t.cut.do(ctx, &t.site)
	if err != nil {
		return fmt.Errorf("the cut: %w", err)
	}
	t.returned = t.cutAt
	if err := s.order(order{Last: t.Size / 2}); err != nil || undo == nil {
		return err
	}
	if err := errors.Join(sleep.For(ctx, t.Away), undo(ctx)); err != nil {
		return fmt.Errorf("the path's return: %w", err)
	}
	t.returned = time.Now()
	return nil
}

// counterpart returns the sender's side of a carrier that the receiver uses: the live one of the
// same technique with the most bytes sent.
func counterpart(all []carrierState, far carrierState) (near carrierState) {
	for _, c := range all {
		if c.Technique == far.Technique && !c.Closed && c.Out >= near.Out {
			near = c
		}
	}
	return near
}

// settle waits until the stream has arrived and uses the best technique permanently, or the time
// for that is over.
func (t *trial) settle(ctx context.Context) error {
	ctx, cancel := context.WithDeadlineCause(ctx, t.returned.Add(returnBound+calm), errNotBack)
	defer cancel()
	err := t.pair.ends[receiver].until(ctx, "it is back", func(e *process) bool {
		since, ok := e.line.steady(t.returned, t.site.way.technique)
		return ok && e.latest.Bytes >= t.Size && e.latest.At.Sub(since) >= calm
	})
	if errors.Is(err, errNotBack) {
		return nil // the cell records it
	}
	return err
}

// resting is the interval in which processor use is measured after the stream.
const resting = 2 * time.Second

// checkIdle measures whether a daemon or an end is busy though only a trickle is left.
func (t *trial) checkIdle(ctx context.Context) error {
	pids := map[string]int{}
	for _, d := range t.site.grid.Daemons() {
		pids[d.Name] = d.PID()
	}
	for _, e := range t.pair.ends {
		pids[e.name] = e.cmd.Process.Pid
	}
	before := map[string]time.Duration{}
	for name, pid := range pids {
		before[name] = grid.ProcessorTime(pid)
	}
	if err := sleep.For(ctx, resting); err != nil {
		return err
	}
	for name, pid := range pids {
		if busy := (grid.ProcessorTime(pid) - before[name]).Seconds() / resting.Seconds(); busy > t.cell.Busy || t.cell.Busier == "" {
			t.cell.Busy, t.cell.Busier = busy, name
		}
	}
	return nil
}

var errNotBack = errors.New("the time for that is over")

// tell records the outcome in the cell: line until the stream was to end, and the ends' results.
func (t *trial) tell(line timeline, sent, got *final) {
	c := t.cell
	last := line.samples[len(line.samples)-1]
	c.Bytes, c.AwayMS, c.HashOK = last.Bytes, ms(t.returned.Sub(t.cutAt)), sent.Digest == got.Digest
	c.Lost, c.Doubled, c.mismatch, c.GapP99MS = got.Lost, got.Doubled, got.Fault, ms(got.GapP99)
	before, _ := line.latest(t.cutAt)
	after, _ := line.resumed(t.cutAt, t.returned.Add(calm))
	end, _ := line.latest(last.At)
	c.Before, c.After, c.End = before.State.Path, after.State.Path, end.State.Path
	c.was, c.is = before.Technique.String(), end.Technique.String()
	had, has := line.by(t.cutAt), line.by(last.At)
	c.broken = len(line.broken(had, t.cutAt))
	c.stayed = slices.ContainsFunc(has, func(n int) bool { return slices.Contains(had, n) })
	if stall, ok := line.stall(t.cutAt, t.returned.Add(calm)); ok {
		c.StallMS = ms(stall.Length)
	}
	if stall, ok := line.stall(t.started, last.At); ok {
		c.StallMaxMS = ms(stall.Length)
	}
	if since, ok := line.steady(t.returned, t.site.way.technique); ok {
		back := ms(since.Sub(t.returned))
		c.BackMS = &back
	}
	c.Carriers, c.Connections = line.used(), last.Connections
	c.Rate = float64(before.Bytes) * 8 / 1e6 / before.At.Sub(t.started).Seconds()
}
