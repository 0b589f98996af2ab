package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/cmd/internal/ask"
	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
	"github.com/isthmus-grid/isthmus/launch/detached"
	"github.com/isthmus-grid/isthmus/overlay"
)

// killFailed returns the failure of a command that has ended a job on some hosts, or on none, of those
// that are known; stale says why others may not be.
func killFailed(c *cli.Context, ended int, stale string, err error) error {
	if _, is := errors.AsType[*cmdline.Failure](err); is {
		return err
	}
	if stale != "" {
		return ask.StaleList(c, err.Error()+" that is known", stale, err)
	}
	f := &cmdline.Failure{Cause: err.Error(), Next: "isthmus ps lists the jobs, and the hosts that do not answer", Err: err, Verbose: c.Bool("verbose")}
	if ended > 0 {
		f.Next = "try again: isthmus kill " + c.Args().First()
	}
	return f
}

// killCommand is "isthmus kill": the end of a job.
func killCommand() *cli.Command {
	return &cli.Command{
		Name:  "kill",
		Usage: "end a job on all its hosts",
		Description: "JOB is its id, as isthmus ps shows it, or a prefix of it. The user who submitted a job may end it; on a node, root and the helper's user may too.\n" +
			"A detached job is ended by its driver, and needs no helper.",
		ArgsUsage: "JOB",
		Flags:     []cli.Flag{helperFlag(), cmdline.VerboseFlag()},
		Action: func(c *cli.Context) error {
			if err := cmdline.Words(c, "kill", 1); err != nil {
				return err
			}
			name := c.Args().First()
			root, _ := detached.Root() // without one there are no detached jobs
			job, err := liveDetached(root, name, func() ([]overlay.JobID, error) { return jobsOfGrid(c) })
			switch {
			case err == nil && job != nil:
				err = killDetached(c, job)
			case err == nil && ask.Helper(c) == "":
				return notLive(root, name)
			case err == nil:
				err = killOnGrid(c, name)
			}
			if _, is := errors.AsType[*cmdline.Failure](err); err == nil || is {
				return err
			}
			return fmt.Errorf("kill: %w", err)
		},
	}
}

// killOnGrid ends a job on all hosts that have it.
func killOnGrid(c *cli.Context, name string) error {
	grid, err := gridOf(c)
	if err != nil {
		return err
	}
	defer grid.Close()
	stale := ""
	grid.Stale = func(why string) { stale = why }
	id, ended, err := grid.Kill(c.Context, name)
	if id != "" {
		fmt.Fprintf(c.App.Writer, "%s was ended on %d hosts\n", id, ended)
	}
	if err != nil {
		return killFailed(c, ended, stale, ask.HelperFailed(c, "kill", err))
	}
	if stale != "" {
		ask.StaleList(c, "kill: it may go on at other sites, whose hosts are as before, or missing", stale, nil).Print(os.Stderr, c.App.Name)
	}
	return nil
}
