package runjob

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/cmd/internal/ask"
	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
	"github.com/isthmus-grid/isthmus/launch/submit"
)

// runOverGrid is "isthmus run" with a helper.
func runOverGrid(c *cli.Context) error {
	job, err := gridJob(c)
	if err != nil {
		return err
	}
	grid, err := submit.Dial(ask.Helper(c))
	if err != nil {
		return fmt.Errorf("run: %w", err)
	}
	defer grid.Close()
	if c.Bool("dry-run") {
		return dryRun(c, grid, job)
	}
	if err := fetchFiles(c, job); err != nil {
		return filesFailed(c, err)
	}
	con, err := newConsole(c, job.Key.ID())
	if err != nil {
		return err
	}
	return con.end(submitted(c, con, grid, job))
}

// submitted submits a job and monitors it until its end.
func submitted(c *cli.Context, con *console, grid *submit.Grid, job *submit.Job) (err error) {
	if job.Output, err = con.output(c.String("output")); err != nil {
		return err
	}
	job.Stdin = standardInput()
	var stop func()
	job.Signals, stop = endSignals()
	defer stop()
	tell := &narrator{verbose: c.Bool("verbose")}
	defer tell.stop()
	job.Progress = func(p submit.Progress) {
		tell.await(p)
		if line := tell.line(p, time.Now()); line != "" {
			con.say(line)
		}
		if p.Step == "running" {
			con.started()
		}
	}
	if c.Bool("show-map") {
		return submitWithMap(c, con, grid, job)
	}
	_, err = submitJob(c, con, grid, job)
	return err
}

// submitJob runs the job and handles what it leaves behind.
func submitJob(c *cli.Context, con *console, grid *submit.Grid, job *submit.Job) (*submit.Result, error) {
	user := &submit.Folder{Dir: c.String("fetch-to")}
	if job.FetchTo == nil {
		job.FetchTo = user
	} else {
		job.FetchTo = &reports{to: job.FetchTo, others: user}
	}
	r, err := submit.Run(c.Context, grid, job)
	closeErr := job.Output.Close()
	_, fetchErr := user.Close()
	switch {
	case err != nil:
		var exit cli.ExitCoder
		if !errors.As(err, &exit) {
			err = ask.HelperFailed(c, "run", err)
		}
		return r, err // its exit status takes precedence
	case closeErr != nil:
		return r, fmt.Errorf("run: the output: %w", closeErr)
	case fetchErr != nil:
		return r, fmt.Errorf("run: --fetch: %w", fetchErr)
	}
	if c.Bool("verbose") {
		con.say(fmt.Sprintf("the job succeeded; %d bytes of files were sent to %d hosts", r.Staged, len(r.Places)))
	}
	return r, nil
}

// dryRun shows where the job would run.
func dryRun(c *cli.Context, grid *submit.Grid, job *submit.Job) error {
	risk, err := riskOf(c, job.Place.Ranks)
	if err != nil {
		return err
	}
	defer cmdline.Waiting(awaited["listing"].what, awaited["listing"].next)()
	plan, err := submit.Plan(c.Context, grid, job)
	if err != nil {
		return ask.HelperFailed(c, "run", err)
	}
	plan.Risk, plan.Replace = risk, job.Replace
	if c.Bool("json") {
		return json.NewEncoder(c.App.Writer).Encode(plan)
	}
	return plan.WriteTable(c.App.Writer)
}
