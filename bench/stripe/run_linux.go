package stripe

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/isthmus-grid/isthmus/bench"
	"github.com/isthmus-grid/isthmus/bench/runner"
	"github.com/isthmus-grid/isthmus/lab/wan"
)

// Targets of several carriers relative to one.
const (
	targetPath    = 3
	targetProxies = 1.8
)

// lossy is the congestion control that takes a loss for congestion. One that does not, such as bbr,
// fills a path of little loss with one carrier.
const lossy = "cubic"

// Run measures and writes the rows of each scenario when it is done. It must run in a process that
// went through lab.Enter. Missing a target is not an error.
func Run(ctx context.Context, o Options) error {
	if o.Scenario == "lossy" {
		if err := runLossy(ctx, o); err != nil {
			return fmt.Errorf("bench stripe: over a long path with losses: %w", err)
		}
		return nil
	}
	if o.Scenario != "proxies" {
		if err := runPath(ctx, o); err != nil {
			return fmt.Errorf("bench stripe: over one path: %w", err)
		}
	}
	if o.Scenario != "path" {
		if err := runProxies(ctx, o); err != nil {
			return fmt.Errorf("bench stripe: by two proxies: %w", err)
		}
	}
	return nil
}

func runPath(ctx context.Context, o Options) (err error) {
	measured, system, err := congestions()
	if err != nil {
		return err
	}
	o.Rate = cmp.Or(o.Rate, 1e9)
	shape := wan.Shape{Delay: o.RTT / 2, Loss: o.Loss, Rate: o.Rate}
	hosts, err := runner.NewDistantHosts(2, runner.Between(0, 1, shape), runner.Between(1, 0, shape))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, hosts.Close()) }()
	p := path{hosts}
	for _, congestion := range measured {
		s := &scenario{name: "path", counts: []int{1, 8, own}, of: 8, params: map[string]any{
			"congestion": congestion, "system_congestion": system, "rtt_ms": float64(o.RTT.Microseconds()) / 1000,
			"loss": o.Loss, "rate_mbit": float64(o.Rate) / 1e6,
		}}
		if congestion == lossy {
			s.target = targetPath
		}
		err := o.measure(ctx, s, func(n int) (result, error) { return p.runLink(ctx, congestion, n) })
		if err != nil {
			return err
		}
	}
	return nil
}

func runProxies(ctx context.Context, o Options) (err error) {
	r, down, err := newRelays(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, down()) }()
	_, system, err := congestions()
	if err != nil {
		return err
	}
	s := &scenario{name: "proxies", counts: []int{1, 2, own}, target: targetProxies, of: 2, params: map[string]any{
		"congestion": system, "rtt_ms": float64(o.RTT.Microseconds()) / 1000, "proxy_mbit": float64(o.Proxy) / 1e6,
	}}
	return o.measure(ctx, s, func(n int) (result, error) { return r.runLink(ctx, n) })
}

// measure measures links of all counts of carriers in turn, and writes the rows.
func (o Options) measure(ctx context.Context, s *scenario, turn func(carriers int) (result, error)) error {
	results := make([][]result, len(s.counts))
	for round := range o.Repeat {
		for i, n := range s.counts {
			fmt.Fprintf(o.Err, "\r%s %v: round %d of %d, %s\x1b[K", s.name, s.params["congestion"], round+1, o.Repeat, asked(n))
			r, err := turn(n)
			if err != nil {
				return err
			}
			results[i] = append(results[i], r)
			if err := ctx.Err(); err != nil {
				return context.Cause(ctx)
			}
		}
	}
	fmt.Fprint(o.Err, "\r\x1b[K")
	return bench.Write(o.Out, o.JSON, s.rows(results)...)
}

func asked(n int) string {
	if n == own {
		return "choosing for itself"
	}
	return fmt.Sprintf("carriers: %d", n)
}
