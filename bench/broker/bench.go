// Package broker measures a broker: how many questions it answers on one core, and how much memory
// a registered process costs it. The broker is a real process restricted to one core
// (GOMAXPROCS=1); the frontals are real sessions from this process, over mutual TLS on loopback.
// Both share the machine, so every rate is reported twice: per second of the clock, and per second
// of the broker's CPU time.
//
// It reads the broker's memory and CPU time from /proc. Its files are in a temporary folder, which
// it removes.
package broker

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/isthmus-grid/isthmus/bench"
)

// Options select what to measure. Zero fields take the values for which the project's targets are
// set.
type Options struct {
	Broker    []string      // command that runs a broker; its settings are added as flags
	JSON      bool          // print rows as JSON, not as a table
	Sites     int           // 50, each with one frontal and one session
	Processes int           // 10,000, evenly over the sites
	Repeat    int           // 5
	Duration  time.Duration // of one repetition: 2 s
}

func (o *Options) defaults() {
	set := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	set(&o.Sites, 50)
	set(&o.Processes, 10_000)
	set(&o.Repeat, 5)
	if o.Duration == 0 {
		o.Duration = 2 * time.Second
	}
}

// The targets: questions of one core, and bytes of a process.
const (
	targetRate   = 20_000
	targetMemory = 2048
)

// Run measures, and writes rows to w.
func Run(ctx context.Context, w io.Writer, o Options) (err error) {
	o.defaults()
	b, err := startBroker(ctx, o)
	if err != nil {
		return err
	}
	defer func() {
		if stopErr := b.stop(); err == nil {
			err = stopErr
		}
	}()
	load, err := newLoad(ctx, b, o)
	if err != nil {
		return err
	}
	defer load.close()
	rows, err := memory(ctx, b, load, o)
	if err != nil {
		return err
	}
	rates, err := rates(ctx, b, load, o)
	if err != nil {
		return err
	}
	rows = append(rows, rates...)
	after, err := b.resident()
	if err != nil {
		return err
	}
	rows = append(rows, bench.Row{Bench: "broker", Figure: "resident_after_load", Params: o.params(), Value: float64(after) / (1 << 20), Unit: "MiB"})
	return bench.Write(w, o.JSON, rows...)
}

func (o Options) params() map[string]any {
	return map[string]any{"sites": o.Sites, "processes": o.Processes}
}

// memory registers all processes and compares the broker's resident memory afterwards with that
// before, when all sessions were open.
func memory(ctx context.Context, b *process, l *load, o Options) ([]bench.Row, error) {
	before, err := b.resident()
	if err != nil {
		return nil, err
	}
	start := time.Now()
	if err := l.register(ctx); err != nil {
		return nil, err
	}
	took := time.Since(start)
	after, err := b.resident()
	if err != nil {
		return nil, err
	}
	per := float64(after-before) / float64(o.Processes)
	return []bench.Row{
		bench.Row{Bench: "broker", Figure: "memory_per_process", Params: o.params(), Value: per, Unit: "B"}.AtMost(targetMemory),
		{Bench: "broker", Figure: "resident_before", Params: o.params(), Value: float64(before) / (1 << 20), Unit: "MiB"},
		{Bench: "broker", Figure: "resident", Params: o.params(), Value: float64(after) / (1 << 20), Unit: "MiB"},
		{Bench: "broker", Figure: "registrations", Params: o.params(), Value: float64(o.Processes) / took.Seconds(), Unit: "1/s"},
	}, nil
}

// way is a way in which frontals ask.
type way struct {
	batch   int // questions in a call
	callers int // of each frontal, one call in flight each
}

// ways are what a loaded broker receives, and the worst case. A frontal has one call in flight and sends the
// questions that have gathered meanwhile as the next one, so they come in batches; calls of one question cost most.
var ways = []way{{batch: 64, callers: 1}, {batch: 1, callers: 4}}

// rates measures both ways alternately, and returns the medians.
func rates(ctx context.Context, b *process, l *load, o Options) ([]bench.Row, error) {
	perCPU := make([][]float64, len(ways))
	var cases []func(context.Context) (float64, error)
	for i, way := range ways {
		cases = append(cases, func(ctx context.Context) (float64, error) {
			perSecond, per, err := rate(ctx, b, l, way, o.Duration)
			perCPU[i] = append(perCPU[i], per)
			return perSecond, err
		})
	}
	perSecond, err := bench.Interleave(ctx, o.Repeat, cases...)
	if err != nil {
		return nil, err
	}
	var rows []bench.Row
	for i, way := range ways {
		row := func(figure string, values []float64) bench.Row {
			params := o.params()
			params["questions_per_call"], params["callers"] = way.batch, way.callers*o.Sites
			params["spread"] = fmt.Sprintf("%.3f", bench.Spread(values))
			return bench.Row{Bench: "broker", Figure: figure, Params: params, Value: bench.Median(values), Unit: "1/s"}
		}
		clock := row("resolves", perSecond[i])
		if way.batch > 1 { // with single questions the askers need more CPU time than the broker
			clock = clock.AtLeast(targetRate)
		}
		rows = append(rows, clock, row("resolves_per_cpu_second", perCPU[i]).AtLeast(targetRate))
	}
	return rows, nil
}

// rate asks for the duration d and returns the answers per second of the clock and of the broker's
// CPU time.
func rate(ctx context.Context, b *process, l *load, way way, d time.Duration) (perSecond, perCPU float64, err error) {
	cpu, err := b.cpu()
	if err != nil {
		return 0, 0, err
	}
	start := time.Now()
	answers, err := l.ask(ctx, way, d)
	if err != nil {
		return 0, 0, err
	}
	took := time.Since(start)
	used, err := b.cpu()
	if err != nil {
		return 0, 0, err
	}
	if used -= cpu; used <= 0 {
		return 0, 0, fmt.Errorf("bench broker: the broker used no CPU time in %v; let a repetition last longer", took)
	}
	return float64(answers) / took.Seconds(), float64(answers) / used.Seconds(), nil
}
