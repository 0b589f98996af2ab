// Package faults is `isthmus-lab break`: two processes at two sites with a stream between them,
// whose carrier is cut in the middle in every known way that ends connections, for every technique
// that makes one. Each cell of the table has a lab and a grid of its own. The package judges what
// arrived over the link and when; it does not know how links survive, and watches carriers from
// below, where the mesh gets them. Its state is one lab at a time.
package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// Options of a run.
type Options struct {
	Techniques []string // of Techniques; none: all
	Cuts       []string // of Cuts; none: all
	Size       uint64   // minimum size of the stream, in bytes
	RTT        time.Duration
	Rate       int64         // of the WAN between two endpoints, in bit/s; 0: no limit
	Away       time.Duration // how long a killed daemon or dropped path stays away
	Repeat     int           // number of runs of each cell, each in a lab of its own

	// Program returns the command line that runs this program with the given words.
	Program func(words ...string) []string

	// Logs is a folder for the logs of the daemons of cells with a fault; "": the logs are not
	// kept.
	Logs string

	JSON bool // one object per cell in place of the table
	Out  io.Writer
	Err  io.Writer // progress
}

// chosen returns the selected ways and cuts.
func (o Options) chosen() ([]way, []cut, error) {
	ws, err := pick("technique", ways, func(w way) string { return w.name }, o.Techniques)
	if err != nil {
		return nil, nil, err
	}
	ks, err := pick("cut", cuts, func(c cut) string { return c.name }, o.Cuts)
	return ws, ks, err
}

// Check returns an error for invalid options, or nil.
func (o Options) Check() error {
	if o.Size < 1<<20 {
		return fmt.Errorf("a stream of %d bytes is over before it can be cut; want 1 MiB at least", o.Size)
	}
	if o.Away <= 0 || o.Away > time.Minute {
		return fmt.Errorf("%v is no time to be away; want more than 0 and a minute at most", o.Away)
	}
	if o.Repeat < 1 {
		return fmt.Errorf("%d times is nothing to do; want 1 at least", o.Repeat)
	}
	_, _, err := o.chosen()
	return err
}

// Run cuts links and prints the outcome. It must run in a process that went through lab.Enter. The
// error names the cells that missed a target.
func Run(ctx context.Context, o Options) error {
	if err := o.Check(); err != nil {
		return err
	}
	ws, ks, err := o.chosen()
	if err != nil {
		return err
	}
	t := &table{total: o.Repeat * len(ws) * len(ks), w: o.Err, start: time.Now()}
	for range o.Repeat {
		for _, w := range ws {
			for _, k := range ks {
				if err := o.fill(ctx, t, w, k); err != nil {
					return err
				}
			}
		}
	}
	if !o.JSON {
		if err := t.text(o.Out); err != nil {
			return err
		}
	}
	return t.verdict()
}

// fill adds a cell to the table. It returns only errors that end the run.
func (o Options) fill(ctx context.Context, t *table, w way, k cut) error {
	t.announce(w, k)
	c := o.cell(ctx, w, k)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	t.add(c)
	if o.JSON {
		return json.NewEncoder(o.Out).Encode(c)
	}
	return nil
}
