// Package matrix is `isthmus-lab matrix`: it builds two sites of each kind of firewall, runs a
// whole grid over them, connects every ordered pair of kinds, and compares the outcome with the
// broker's prediction, the measurements of package oracle, and the counters of the emulated
// internet. It judges; it does not decide or connect. Its state is one lab at a time.
package matrix

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// Options of a run.
type Options struct {
	Presets []string      // every ordered pair of these is connected,
	Pairs   []Pair        // or only these, if there are any
	RTT     time.Duration // between any two endpoints

	// Binary returns the command line that runs a daemon. With Unprivileged, Confined converts it
	// to that of the same daemon without CAP_NET_RAW, and frontals and helpers are run by it.
	Binary       func(daemon string) []string
	Unprivileged bool
	Confined     func(argv []string) []string

	// Measured makes every site measure its own firewall: none of its profile is declared. Links
	// are made as processes of a job make them, and may move to a better path.
	Measured bool

	// IPv6 makes everything use IPv6, which all presets must have (HasIPv6).
	IPv6 bool

	// DualStack makes daemons reach the broker by name, at the addresses of both versions of IP that it has beside sites
	// with IPv6.
	DualStack bool

	JSON bool      // one object per pair instead of the grid
	HTML string    // file for the grid as a page; "" for none
	Out  io.Writer // the grid, or the objects
	Err  io.Writer // progress
}

// Run connects the pairs and prints the outcome. More kinds than fit in one lab are split over
// several, one after the other. Pairs are also connected one after the other, so that everything
// that a lab counts belongs to the pair. The error names the pairs whose outcome was wrong.
func Run(ctx context.Context, o Options) error {
	if err := writable(o.HTML); err != nil {
		return err
	}
	var parts []part
	if len(o.Pairs) > 0 {
		o.Presets = occurring(o.Pairs)
		parts = deal(o.Pairs)
	} else {
		parts = square(o.Presets)
	}
	total := 0
	for _, p := range parts {
		total += len(p.pairs)
	}
	r := &run{Options: o, table: newTable(o, total), meter: newMeter(o.Err, total)}
	for i, p := range parts {
		r.meter.say("lab %d of %d: building %d sites", i+1, len(parts), len(p.from)+len(p.to))
		if err := r.part(ctx, p); err != nil {
			return err
		}
	}
	r.meter.done()
	return errors.Join(r.table.verdict(), errors.Join(r.broken...), r.report())
}

// writable checks at the start that a file can be written.
func writable(name string) error {
	if name == "" {
		return nil
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}

// run is one run in progress.
type run struct {
	Options
	table  *table
	meter  *meter
	broken []error // errors of labs and daemons in addition to those of pairs
}

// part connects the pairs of one lab. A daemon that had ended before it was stopped is a fault of
// the run, but does not prevent the next lab.
func (r *run) part(ctx context.Context, p part) error {
	w, err := build(ctx, r.Options, p)
	if err != nil {
		return err
	}
	defer func() {
		if err := errors.Join(w.checkFamily(), w.close()); err != nil {
			r.broken = append(r.broken, err)
		}
	}()
	for _, pair := range p.pairs {
		r.meter.next(pair)
		c := w.connect(ctx, pair)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		r.table.add(c)
		if r.JSON {
			if err := json.NewEncoder(r.Out).Encode(c); err != nil {
				return err
			}
		}
	}
	return nil
}

// report prints the grid and writes the page.
func (r *run) report() error {
	if !r.JSON {
		if err := r.table.text(r.Out); err != nil {
			return err
		}
	}
	if r.HTML == "" {
		return nil
	}
	f, err := os.Create(r.HTML)
	if err != nil {
		return err
	}
	if err := errors.Join(r.table.html(f), f.Close()); err != nil {
		return err
	}
	fmt.Fprintln(r.Err, "wrote", r.HTML)
	return nil
}
