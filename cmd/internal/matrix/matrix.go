// Package matrix is `isthmus lab matrix`: it builds two sites of each kind of
// firewall, runs a whole grid over them, connects every ordered pair of kinds,
// and holds what happened against what the broker said beforehand, what the
// measurements of package truth say, and what the emulated internet counted. It
// judges; it does not decide or connect. Its state is one lab at a time.
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
	Presets []string
	RTT     time.Duration // between any two places

	// Binary returns the command line that runs a daemon. With Unprivileged,
	// Confined makes of one that of the same daemon without CAP_NET_RAW, and
	// frontals and helpers are run by it.
	Binary       func(daemon string) []string
	Unprivileged bool
	Confined     func(argv []string) []string

	JSON bool      // one object per pair in place of the grid
	HTML string    // file for the grid as a page; "" for none
	PNG  string    // file for the grid as a picture; "" for none
	Out  io.Writer // the grid, or the objects
	Err  io.Writer // progress
}

// perLab is how many presets one lab has on each side: 36 sites of a gateway and
// a node each are 74 daemons, which a small machine still carries.
const perLab = 18

// blocks cuts presets into runs of nearly equal length, each at most perLab.
func blocks(presets []string) [][]string {
	n := (len(presets) + perLab - 1) / perLab
	var all [][]string
	for i := range n {
		all = append(all, presets[i*len(presets)/n:(i+1)*len(presets)/n])
	}
	return all
}

// Run connects every ordered pair and prints the outcome. More presets than one
// lab holds get one lab for each pair of blocks. Pairs are connected one after
// the other, so that everything that the lab counts is the pair's. The error
// names the pairs that did not do what they should.
func Run(ctx context.Context, o Options) error {
	for _, name := range []string{o.HTML, o.PNG} {
		if err := writable(name); err != nil {
			return err
		}
	}
	r := &run{Options: o, table: newTable(o), meter: newMeter(o.Err, len(o.Presets)*len(o.Presets))}
	parts := blocks(o.Presets)
	for i, from := range parts {
		for j, to := range parts {
			r.meter.say("lab %d of %d: building %d sites", i*len(parts)+j+1, len(parts)*len(parts), len(from)+len(to))
			if err := r.block(ctx, from, to); err != nil {
				return err
			}
		}
	}
	r.meter.done()
	if err := r.report(); err != nil {
		return err
	}
	return r.table.verdict()
}

// writable says early that a file cannot be written, and not after minutes.
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

// run is one run under way.
type run struct {
	Options
	table *table
	meter *meter
}

// block connects every pair of the two lists in one lab.
func (r *run) block(ctx context.Context, from, to []string) (err error) {
	w, err := build(ctx, r.Options, from, to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	for _, a := range from {
		for _, b := range to {
			r.meter.next(a, b)
			c := w.connect(ctx, a, b)
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
	}
	return nil
}

// report prints the grid and writes the files.
func (r *run) report() error {
	if !r.JSON {
		if err := r.table.text(r.Out); err != nil {
			return err
		}
	}
	for _, f := range []struct {
		name  string
		write func(io.Writer) error
	}{{r.HTML, r.table.html}, {r.PNG, r.table.png}} {
		if f.name == "" {
			continue
		}
		if err := toFile(f.name, f.write); err != nil {
			return err
		}
		fmt.Fprintln(r.Err, "wrote", f.name)
	}
	return nil
}

func toFile(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}
