package randomnet

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// Options of a run.
type Options struct {
	First, Count uint64                         // seeds
	Program      func(words ...string) []string // command line of this program with more arguments
	JSON         bool                           // one object per seed instead of a line
	Out          io.Writer
}

// Run runs the seeds one after the other. The error names those that failed; the output of their
// daemons and ranks is printed as it happens.
func Run(ctx context.Context, o Options) error {
	var failed []string
	for seed := o.First; seed < o.First+o.Count; seed++ {
		out := play(ctx, o, seed)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := out.print(o); err != nil {
			return err
		}
		if !out.OK {
			failed = append(failed, fmt.Sprint(seed))
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("%d of %d networks failed: seeds %s", len(failed), o.Count, strings.Join(failed, ", "))
	}
	return nil
}

func (out Outcome) print(o Options) error {
	if o.JSON {
		return json.NewEncoder(o.Out).Encode(out)
	}
	if !out.OK {
		_, err := fmt.Fprintf(o.Out, "%v: FAILED: %s\n  %s\n", out.Network, out.Error, out.output)
		return err
	}
	var links []string
	for _, t := range slices.Sorted(maps.Keys(out.Paths)) {
		links = append(links, fmt.Sprintf("%d %s", out.Paths[t], t))
	}
	_, err := fmt.Fprintf(o.Out, "%v: %d messages in %.1f s; links: %s\n", out.Network, out.Messages, out.Seconds, strings.Join(links, ", "))
	return err
}
