package launch

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

// patience is the timeout of one run.
const patience = 3 * time.Minute

// line is one line of a process's output.
type line struct {
	Rank         int
	Copy         int
	Host         string
	Stream, Text string
}

// run submits a job at a node and returns the output of its processes, once all have succeeded,
// and the duration.
func run(ctx context.Context, g *grid.Grid, binary func(string) []string, node, at string, words ...string) (lines []line, took time.Duration, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not done after %v", patience))
	defer cancel()
	argv := append(binary("run"), append([]string{"--helper", g.Socket(node), "--output", "json"}, words...)...)
	cmd := g.Lab.Host(at).Command(ctx, argv[0], argv[1:]...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, 0, err
	}
	err = cmd.Wait()
	took = time.Since(start)
	if err != nil {
		return nil, 0, fmt.Errorf("isthmus run %s: %w\n%s", strings.Join(words, " "), errors.Join(err, context.Cause(ctx)), stderr.String())
	}
	for dec := json.NewDecoder(&stdout); dec.More(); {
		var l line
		if err := dec.Decode(&l); err != nil {
			return nil, 0, fmt.Errorf("output of isthmus run: %w", err)
		}
		if l.Stream == "stdout" {
			lines = append(lines, l)
		}
	}
	return lines, took, nil
}
