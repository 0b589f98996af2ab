package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/broker"
	"github.com/isthmus-grid/isthmus/cmd/internal/ask"
	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
	"github.com/isthmus-grid/isthmus/cmd/internal/live"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/printable"
	"github.com/isthmus-grid/isthmus/launch/submit"
)

// topCommand is "isthmus top".
func topCommand() *cli.Command {
	return &cli.Command{
		Name:  "top",
		Usage: "watch the grid: sites, paths, rates, hosts with what is free, jobs",
		Description: "Hosts and jobs are what this node's helper knows. With an admin's certificate (isthmus login, or the flags) it also\n" +
			"shows what the broker knows: sites, how each pair connects, rates, proxies. q ends it, p pauses, arrows scroll.",
		Flags: append([]cli.Flag{
			helperFlag(),
			&cli.DurationFlag{Name: "every", Value: 2 * time.Second, Usage: "`HOW-LONG` to wait between questions"},
			&cli.BoolFlag{Name: "once", Usage: "print the picture once, without colours, and end"},
		}, adminFlags()...),
		Action: func(c *cli.Context) error {
			if c.Duration("every") < 100*time.Millisecond {
				return cmdline.Usage("top: --every: want 100ms or more")
			}
			sections, closeAll, err := topSections(c)
			if err != nil {
				return err
			}
			defer closeAll()
			if c.Bool("once") {
				return live.Once(c.Context, c.App.Writer, sections)
			}
			if !cmdline.IsTerminal(os.Stdin) || !cmdline.IsTerminal(os.Stdout) {
				return cmdline.Usage("top: needs a terminal: --once prints the picture once; isthmus status, hosts and ps --json are for programs")
			}
			cmdline.NoWaiting()
			return live.Run(c.Context, os.Stdin, os.Stdout, c.Duration("every"), sections)
		},
	}
}

// topSections returns what the user can ask for, with this node's helper and with a broker's admin's
// certificate.
func topSections(c *cli.Context) (all []live.Section, closeAll func(), err error) {
	closeAll = func() {}
	if err := useContext(c); err != nil {
		return nil, nil, fmt.Errorf("top: %w", err)
	}
	if c.IsSet("frontal") {
		return nil, nil, cmdline.Usage("top: a frontal has no picture to show: isthmus status --frontal " + c.String("frontal"))
	}
	if c.IsSet("broker") {
		all = append(all, live.Section{Title: "the broker", Ask: func(ctx context.Context) (string, error) { return brokerText(c) }})
	}
	if helper := ask.Helper(c); helper != "" {
		grid, err := submit.Dial(helper)
		if err != nil {
			return nil, nil, fmt.Errorf("top: %w", err)
		}
		closeAll = func() { grid.Close() }
		all = append(all,
			live.Section{Title: "hosts", Ask: func(ctx context.Context) (string, error) { return hostsText(ctx, c, grid) }},
			live.Section{Title: "jobs", Ask: func(ctx context.Context) (string, error) { return jobsText(ctx, c, grid) }})
	}
	if len(all) == 0 {
		return nil, nil, cmdline.Usage("top: name this node's helper with --helper or ISTHMUS_HELPER, or log in as an admin: isthmus login --help")
	}
	return all, closeAll, nil
}

// topTime bounds a question.
const topTime = 5 * time.Second

// brokerText is what isthmus status prints.
func brokerText(c *cli.Context) (string, error) {
	var b bytes.Buffer
	err := askAdmin(c, func(ctx context.Context, admin controlpb.AdminClient) error {
		r, err := admin.Status(ctx, &controlpb.StatusRequest{})
		if err != nil {
			return err
		}
		var s broker.Status
		if err := json.Unmarshal(r.Json, &s); err != nil {
			return fmt.Errorf("this version does not understand the broker's answer: %w", err)
		}
		return s.WriteTable(&b, time.Now())
	})
	return b.String(), err
}

// hostsText is what isthmus hosts prints.
func hostsText(ctx context.Context, c *cli.Context, grid *submit.Grid) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, topTime)
	defer cancel()
	list, err := grid.List(ctx)
	if err != nil {
		return "", ask.HelperFailed(c, "hosts", err)
	}
	var b bytes.Buffer
	err = hostsTable(&b, list.Hosts, freeJobs(ctx, grid, list.Hosts))
	if list.Stale != "" {
		fmt.Fprintf(&b, "other sites' hosts are as before, or missing: %s\n", printable.Line(list.Stale))
	}
	return b.String(), err
}

// jobsText is what isthmus ps prints.
func jobsText(ctx context.Context, c *cli.Context, grid *submit.Grid) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, topTime)
	defer cancel()
	jobs, silent, err := grid.Jobs(ctx)
	if err != nil {
		return "", ask.HelperFailed(c, "ps", err)
	}
	var b bytes.Buffer
	err = jobsTable(&b, jobs)
	if len(silent) > 0 {
		silentNodes(c, silent).Print(&b, "isthmus")
	}
	return b.String(), err
}
