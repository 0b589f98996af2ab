package gridjob

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/lab/grid"
)

// submitBound is the timeout of a submission.
const submitBound = 3 * time.Minute

// A Line is a line of a process's standard output.
type Line struct {
	Rank         int
	Copy         int
	Host         string
	Stream, Text string
}

// Submit runs a job over the grid at a host of the lab, through the helper of a node. run is the command
// line of `isthmus run`, and words its arguments. It returns what the processes printed, once all
// have succeeded, and the duration.
func Submit(ctx context.Context, g *grid.Grid, run []string, node, at string, words ...string) (lines []Line, took time.Duration, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, submitBound, fmt.Errorf("not done after %v", submitBound))
	defer cancel()
	argv := with(with(run, "--helper", g.Socket(node), "--output", "json"), words...)
	cmd := g.Lab.Host(at).Command(ctx, argv[0], argv[1:]...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, 0, err
	}
	failed := cmd.Wait()
	took = time.Since(start)
	for dec := json.NewDecoder(&stdout); dec.More(); {
		var l Line
		if err := dec.Decode(&l); err != nil {
			return nil, 0, fmt.Errorf("output of isthmus run: %w", errors.Join(err, failed))
		}
		if l.Stream == "stdout" {
			lines = append(lines, l)
		} else {
			fmt.Fprintf(&stderr, "rank %d: %s\n", l.Rank, l.Text)
		}
	}
	if failed != nil {
		return nil, 0, fmt.Errorf("isthmus run %s: %w\n%s", strings.Join(words, " "), errors.Join(failed, context.Cause(ctx)), stderr.String())
	}
	return lines, took, nil
}
