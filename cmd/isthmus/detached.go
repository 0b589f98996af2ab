package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/cmd/internal/ask"
	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
	"github.com/isthmus-grid/isthmus/internal/job/ranks"
	"github.com/isthmus-grid/isthmus/internal/limit"
	"github.com/isthmus-grid/isthmus/internal/printable"
	"github.com/isthmus-grid/isthmus/launch/detached"
	"github.com/isthmus-grid/isthmus/overlay"
)

// listDetached is "isthmus ps --detached".
func listDetached(c *cli.Context) error {
	root, err := detached.Root()
	if err != nil {
		return fmt.Errorf("ps: %w", err)
	}
	jobs, err := detached.List(root)
	if err != nil {
		return fmt.Errorf("ps: %w", err)
	}
	out := json.NewEncoder(c.App.Writer)
	table := printable.NewTable(c.App.Writer)
	if !c.Bool("json") {
		table.Row("job", "state", "status", "began", "host", "program")
	}
	for _, j := range jobs {
		if c.Bool("json") {
			if err := out.Encode(j.State); err != nil {
				return err
			}
			continue
		}
		status := "-"
		if j.Phase == detached.Ended {
			status = fmt.Sprint(j.Status)
		}
		table.Row(j.ID, j.Phase, status, j.Began.Format(time.DateTime), j.Host, programText(j.Argv))
	}
	return table.Flush()
}

// programText is a program and its arguments as a table has them.
func programText(argv []string) string {
	if len(argv) == 0 {
		return "-"
	}
	return limit.Text(strings.Join(argv, " "), 60)
}

// endTime bounds the wait for the end of a job whose driver was asked to end it.
const endTime = 15 * time.Second

// liveDetached returns the user's detached job with a driver on this host that a name means: nil if
// there is none. A prefix must be one that no other job has either, of those of the grid.
func liveDetached(root, name string, grid func() ([]overlay.JobID, error)) (*detached.Job, error) {
	found, err := detached.Match(root, name)
	if err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(found, func(j *detached.Job) bool { return j.Signal(0) != nil })
	if len(found) == 0 || string(found[0].ID) == name {
		return first(found), nil
	}
	all, err := grid()
	if err != nil {
		return nil, err
	}
	for _, id := range all {
		if id != found[0].ID && strings.HasPrefix(string(id), name) {
			found = append(found, nil)
		}
	}
	if len(found) > 1 {
		return nil, fmt.Errorf("job %s: %d jobs begin so; isthmus ps and isthmus ps --detached list them", name, len(found))
	}
	return found[0], nil
}

func first(all []*detached.Job) *detached.Job {
	if len(all) == 0 {
		return nil
	}
	return all[0]
}

// killDetached has a job's driver end it.
func killDetached(c *cli.Context, j *detached.Job) error {
	if err := j.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("%s: %w", j.ID, err)
	}
	ctx, cancel := context.WithTimeout(c.Context, endTime)
	defer cancel()
	if err := j.Await(ctx); errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s: its driver, process %d, is still ending it after %v; isthmus attach %s shows how it goes on", j.ID, j.PID, endTime, j.ID)
	} else if err != nil {
		return fmt.Errorf("%s: %w", j.ID, err)
	}
	fmt.Fprintf(c.App.Writer, "%s was ended\n", j.ID)
	return nil
}

// jobsOfGrid returns the jobs of the grid's hosts; none without a helper.
func jobsOfGrid(c *cli.Context) (all []overlay.JobID, err error) {
	if ask.Helper(c) == "" {
		return nil, nil
	}
	grid, err := gridOf(c)
	if err != nil {
		return nil, err
	}
	defer grid.Close()
	jobs, _, err := grid.Jobs(c.Context)
	for _, j := range jobs {
		all = append(all, j.ID)
	}
	if err != nil {
		return nil, killFailed(c, 0, "", ask.HelperFailed(c, "kill", err))
	}
	return all, nil
}

// notLive says why a name, which means no job with a driver on this host, means nothing to kill
// without a helper.
func notLive(root, name string) error {
	j, err := detached.Find(root, name)
	switch {
	case errors.Is(err, detached.ErrUnknown):
		return cmdline.Usage("kill: name this node's helper with --helper or " + ranks.EnvHelper + ": no detached job of yours begins so")
	case err != nil:
		return fmt.Errorf("kill: job %s: %w", name, err)
	case j.Phase == detached.Ended:
		return fmt.Errorf("kill: %s has ended; isthmus attach %[1]s shows how", j.ID)
	case j.Phase == detached.Lost:
		return fmt.Errorf("kill: %s has no driver any more; isthmus attach %[1]s says more", j.ID)
	}
	return fmt.Errorf("kill: %s: %w: run isthmus kill on %s", j.ID, detached.ErrElsewhere, j.Host)
}
