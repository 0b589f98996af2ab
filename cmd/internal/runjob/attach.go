package runjob

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
	"github.com/isthmus-grid/isthmus/internal/job/ranks"
	"github.com/isthmus-grid/isthmus/launch/detached"
)

// AttachCommand is "isthmus attach": the output of a detached job, and how it ends.
func AttachCommand() *cli.Command {
	return &cli.Command{
		Name:  "attach",
		Usage: "show the output of a job of isthmus run --detach",
		Description: "It shows the output from the beginning, and goes on until the job has ended; the exit status is then the job's own. Ctrl-C ends this command\n" +
			"and not the job. Any number may be attached, also after the job has ended, until its folder is removed, 30 days later.\n" +
			"JOB is its id, or a prefix of it; isthmus ps --detached lists the jobs, and isthmus kill ends one. Only the user who submitted a job sees\n" +
			"it, on the host where that was. If the job's driver was killed or its host was restarted, the exit status is 137.",
		ArgsUsage: "JOB",
		Flags:     []cli.Flag{&cli.BoolFlag{Name: "tail", Usage: "show only what is written from now on"}},
		Action: func(c *cli.Context) error {
			if err := cmdline.Words(c, "attach", 1); err != nil {
				return err
			}
			root, err := detached.Root()
			if err != nil {
				return fmt.Errorf("attach: %w", err)
			}
			name := c.Args().First()
			job, err := detached.Find(root, name)
			if err != nil {
				return fmt.Errorf("attach: job %s: %w; isthmus ps --detached lists them", name, err)
			}
			if c.Bool("tail") && job.Phase == detached.Ended {
				fmt.Fprintf(os.Stderr, "isthmus: %s ended at %s\n", job.ID, job.Ended.Format(time.DateTime))
				return cli.Exit(job.Error, job.Status)
			}
			return attach(c.Context, job, c.Bool("tail"))
		},
	}
}

// attach shows a job's output until it ends, or a signal ends this command.
func attach(ctx context.Context, job *detached.Job, tail bool) error {
	ctx, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, ranks.EndSignals...)
	defer signal.Stop(signals)
	go func() { // ends with attach
		select {
		case s := <-signals:
			leave(&ranks.SignalError{Signal: s.(syscall.Signal)})
		case <-ctx.Done():
		}
	}()
	err := job.Follow(ctx, tail, os.Stdout, os.Stderr)
	var left *ranks.SignalError
	switch {
	case err == nil: // what it ended with is in its output
		return cli.Exit("", job.Status)
	case errors.As(err, &left):
		return cli.Exit(fmt.Sprintf("%s goes on; isthmus attach %[1]s shows it again, isthmus kill %[1]s ends it", job.ID), left.ExitCode())
	case errors.Is(err, detached.ErrLost):
		return cli.Exit(lostText(job), 128+int(syscall.SIGKILL))
	case errors.Is(err, detached.ErrElsewhere):
		return fmt.Errorf("attach: %s: %w: run isthmus attach there", job.ID, err)
	}
	return fmt.Errorf("attach: %s: %w", job.ID, err)
}

// lostText says what became of a job without a driver, and what to do.
func lostText(job *detached.Job) string {
	return fmt.Sprintf("attach: %s: its driver, process %d, ended without recording how the job did: it was killed, its disk was full, or this host was restarted; %s/driver may say more. "+
		"The job's processes have ended too, or do so within 30 s of the driver: submit the job again", job.ID, job.PID, job.Dir())
}
