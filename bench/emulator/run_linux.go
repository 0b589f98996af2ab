package emulator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-grid/isthmus/bench"
	"github.com/isthmus-grid/isthmus/internal/sleep"
	"github.com/isthmus-grid/isthmus/lab/wan"
)

const (
	oneWay  = 10 * time.Millisecond // of every figure but loss
	repeats = 3                     // of every goodput
	warm    = 1500 * time.Millisecond
	span    = 2500 * time.Millisecond

	// tcpShare is the share of data in the IP packets of full TCP segments with timestamps at an
	// MTU of 1500.
	tcpShare = 1448.0 / 1500
)

// Run measures everything, in about two minutes, and writes the rows to w: as JSON when each group
// is done, or as a table at the end. The caller is root, or root in a user namespace of its own.
// Other load on the machine affects the figures.
func Run(ctx context.Context, w io.Writer, asJSON bool) error {
	// The emulator shares this process with the traffic: with few processors its
	// threads would wait for the runtime to take one from a writer.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(16))
	report := bench.Report{W: w, JSON: asJSON}
	for _, g := range []struct {
		name    string
		measure func(context.Context) ([]bench.Row, error)
	}{
		{"round trips", roundTrips},
		{"idle", idle},
		{"jitter", jitter},
		{"loss", loss},
		{"rate", rates},
		{"throughput", throughput},
	} {
		rows, err := g.measure(ctx)
		if err != nil {
			return fmt.Errorf("bench lab: %s: %w", g.name, err)
		}
		for i := range rows {
			rows[i].Bench = "lab"
		}
		if err := report.Add(rows...); err != nil {
			return err
		}
	}
	return report.End()
}

// with runs f on a rig of shape s.
func with(s *wan.Shape, f func(rig) error) (err error) {
	r, err := newRig(s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	return f(r)
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
func us(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// roundTrips measures the round trip of small datagrams and how late the packets were released.
// Blocks with and without the emulator alternate.
func roundTrips(ctx context.Context) ([]bench.Row, error) {
	const blocks, block = 5, 80
	var plain, shaped []float64
	var late, most time.Duration
	for range blocks {
		err := with(nil, func(r rig) error {
			t, err := r.roundTrips(ctx, block)
			plain = append(plain, t...)
			return err
		})
		if err != nil {
			return nil, err
		}
		err = with(&wan.Shape{Delay: oneWay}, func(r rig) error {
			t, err := r.roundTrips(ctx, block)
			shaped = append(shaped, t...)
			c := r.counter()
			late, most = late+c.LateAvg, max(most, c.LateMax)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	params := map[string]any{"delay_ms": ms(oneWay)}
	rtt := func(name string, q, target float64) bench.Row {
		return bench.Row{Figure: "rtt_" + name, Params: params, Value: bench.Quantile(shaped, q), Unit: "ms"}.AtMost(target)
	}
	return []bench.Row{
		{Figure: "rtt_p50", Params: map[string]any{"emulator": "none"}, Value: bench.Median(plain), Unit: "ms"},
		rtt("p50", 0.5, 20.5), rtt("p90", 0.9, 21), rtt("p99", 0.99, 22),
		bench.Row{Figure: "late_avg", Params: params, Value: us(late / blocks), Unit: "us"}.AtMost(100),
		{Figure: "late_max", Params: params, Value: us(most), Unit: "us"},
	}, nil
}

// idle measures the processor time of an idle emulator.
func idle(ctx context.Context) (rows []bench.Row, err error) {
	const watched = time.Second
	err = with(&wan.Shape{Delay: oneWay}, func(r rig) error {
		before := processorTime()
		if err := sleep.For(ctx, watched); err != nil {
			return err
		}
		used := processorTime() - before
		rows = []bench.Row{bench.Row{Figure: "idle_cpu", Value: ms(used) / watched.Seconds(), Unit: "ms/s"}.AtMost(5)}
		return nil
	})
	return rows, err
}

// processorTime returns the processor time that this process has used so far.
func processorTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// jitter measures the spread of one-way times, drawn evenly from 5 to 15 ms.
func jitter(ctx context.Context) (rows []bench.Row, err error) {
	s := wan.Shape{Delay: oneWay, Jitter: oneWay / 2, Reorder: true}
	err = with(&s, func(r rig) error {
		times, err := r.deliver(ctx, 3000, time.Millisecond)
		if err != nil {
			return err
		}
		params := map[string]any{"delay_ms": ms(s.Delay), "jitter_ms": ms(s.Jitter)}
		at := func(name string, q float64) bench.Row {
			want := ms(s.Delay-s.Jitter) + q*ms(2*s.Jitter)
			return bench.Row{Figure: "one_way_" + name, Params: params, Value: bench.Quantile(times, q), Unit: "ms"}.Within(want, 0.6)
		}
		rows = []bench.Row{at("p5", 0.05), at("p50", 0.5), at("p95", 0.95)}
		return nil
	})
	return rows, err
}

// loss measures the share of lost datagrams and checks that the counters include all of them.
func loss(ctx context.Context) (rows []bench.Row, err error) {
	const n, share = 20_000, 0.1
	err = with(&wan.Shape{Loss: share}, func(r rig) error {
		times, err := r.deliver(ctx, n, 100*time.Microsecond)
		if err != nil {
			return err
		}
		c := r.settled(n + endRepeats)
		sent := float64(c.Packets + c.Lost)
		params := map[string]any{"loss": share, "datagrams": n}
		unaccounted := float64(n+endRepeats) - sent
		// Besides the n datagrams the emulator forwarded a few end marks.
		stray := math.Abs(float64(c.Packets) - float64(len(times)))
		rows = []bench.Row{
			bench.Row{Figure: "loss_share", Params: params, Value: float64(c.Lost) / sent, Unit: "1"}.
				Within(share, 5*math.Sqrt(share*(1-share)/n)),
			bench.Row{Figure: "loss_unaccounted", Params: params, Value: unaccounted, Unit: "packets"}.Within(0, 0),
			bench.Row{Figure: "loss_not_delivered", Params: params, Value: max(0, stray-endRepeats), Unit: "packets"}.Within(0, 0),
		}
		return nil
	})
	return rows, err
}

// goodput returns a measurement of n streams over a rig of shape s.
func goodput(s *wan.Shape, n int) func(context.Context) (float64, error) {
	return func(ctx context.Context) (v float64, err error) {
		err = with(s, func(r rig) error {
			v, err = r.goodput(ctx, n, warm, span)
			return err
		})
		return v, err
	}
}

// rates measures the throughput of a TCP stream on a limited link.
func rates(ctx context.Context) (rows []bench.Row, err error) {
	for _, mbit := range []int64{100, 1000} {
		s := wan.Shape{Delay: oneWay, Rate: mbit * 1e6}
		v, err := bench.Interleave(ctx, repeats, goodput(&s, 1))
		if err != nil {
			return nil, err
		}
		rows = append(rows, bench.Row{
			Figure: "goodput",
			Params: map[string]any{"streams": 1, "delay_ms": ms(s.Delay), "rate_mbit": mbit, "spread": bench.Round(bench.Spread(v[0]))},
			Value:  bench.Median(v[0]), Unit: "Mbit/s",
		}.AtLeast(0.95*tcpShare*float64(mbit)))
	}
	return rows, nil
}

// throughput measures unlimited paths, compared with the same hosts without an emulator and so
// without delay.
func throughput(ctx context.Context) (rows []bench.Row, err error) {
	const target = 8000
	for _, n := range []int{1, 4} {
		v, err := bench.Interleave(ctx, repeats, goodput(nil, n), goodput(&wan.Shape{Delay: oneWay}, n))
		if err != nil {
			return nil, err
		}
		row := func(emulator string, v []float64) bench.Row {
			return bench.Row{
				Figure: "goodput",
				Params: map[string]any{"streams": n, "emulator": emulator, "spread": bench.Round(bench.Spread(v))},
				Value:  bench.Median(v), Unit: "Mbit/s",
			}
		}
		// The target is absolute; the first row shows the speed of the machine.
		rows = append(rows, row("none", v[0]), row("10 ms", v[1]).AtLeast(target))
	}
	return rows, nil
}
