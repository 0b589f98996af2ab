package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/cmd/internal/ask"
	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
	"github.com/isthmus-grid/isthmus/internal/job/ranks"
	"github.com/isthmus-grid/isthmus/internal/printable"
	"github.com/isthmus-grid/isthmus/launch/submit"
	"github.com/isthmus-grid/isthmus/overlay"
)

// helperFlag names the helper through which a command sees the grid.
func helperFlag() cli.Flag { return ask.HelperFlag("`SOCKET` of this node's helper") }

// gridOf returns the grid that a command sees.
func gridOf(c *cli.Context) (*submit.Grid, error) {
	helper := ask.Helper(c)
	if helper == "" {
		return nil, cmdline.Usage(c.Command.Name + ": name this node's helper with --helper or " + ranks.EnvHelper)
	}
	grid, err := submit.Dial(helper)
	if err == nil {
		grid.Stale = func(why string) {
			ask.StaleList(c, c.Command.Name+": other sites' hosts are as before, or missing", why, nil).Print(os.Stderr, c.App.Name)
		}
		grid.Slow = func(nodes []overlay.NodeID) {
			next := ask.LookAtHelper
			if len(nodes) > 0 {
				next = "there: systemctl status isthmus-helper"
			}
			cmdline.SayWaiting(someNodes(nodes), next)
		}
	}
	return grid, err
}

// psCommand is "isthmus ps": the jobs of the grid.
func psCommand() *cli.Command {
	return &cli.Command{
		Name:  "ps",
		Usage: "list the jobs that are starting or running on the grid's hosts, or your detached jobs",
		Flags: []cli.Flag{
			helperFlag(),
			&cli.BoolFlag{Name: "detached", Usage: "list your jobs of isthmus run --detach on this host, also those that have ended; needs no helper"},
			&cli.BoolFlag{Name: "json", Usage: "print one object per line and job"},
			cmdline.VerboseFlag(),
		},
		Action: func(c *cli.Context) error {
			if c.Bool("detached") {
				return listDetached(c)
			}
			grid, err := gridOf(c)
			if err != nil {
				return err
			}
			defer grid.Close()
			jobs, silent, err := grid.Jobs(c.Context)
			if err != nil {
				return ask.HelperFailed(c, "ps", err)
			}
			if err := printJobs(c, jobs); err != nil {
				return err
			}
			if len(silent) > 0 {
				silentNodes(c, silent).Print(os.Stderr, c.App.Name)
			}
			return nil
		},
	}
}

// maxNodes bounds the nodes that a message names.
const maxNodes = 3

// someNodes names some of the nodes; without any, what lists them.
func someNodes(nodes []overlay.NodeID) string {
	if len(nodes) == 0 {
		return "the helper's list of hosts"
	}
	var names []string
	for _, n := range nodes[:min(len(nodes), maxNodes)] {
		names = append(names, n.String())
	}
	text := strings.Join(names, ", ")
	if more := len(nodes) - maxNodes; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// silentNodes says that nodes are up and their node services did not answer.
func silentNodes(c *cli.Context, silent map[overlay.NodeID]error) *cmdline.Failure {
	nodes := slices.SortedFunc(maps.Keys(silent), func(a, b overlay.NodeID) int { return cmp.Compare(a.Key(), b.Key()) })
	var why []error
	for _, n := range nodes {
		why = append(why, fmt.Errorf("%v: %w", n, silent[n]))
	}
	return &cmdline.Failure{
		Cause:   c.Command.Name + ": no answer from " + someNodes(nodes) + ", whose jobs are missing here",
		Between: "this node's helper and theirs",
		Next:    "there: systemctl status isthmus-helper; here: isthmus ps -v says why",
		Err:     errors.Join(why...), Verbose: c.Bool("verbose"),
	}
}

// jobLine is a job as --json prints it.
type jobLine struct {
	Job       overlay.JobID `json:"job"`
	State     string        `json:"state"` // held, started, running or ending
	By        string        `json:"by"`    // USER@SITE/NODE
	Processes int           `json:"processes"`
	Hosts     []string      `json:"hosts"`
	AgeS      float64       `json:"age_s"`
	Argv      []string      `json:"argv,omitempty"` // absent: hidden from this user

	Ranks    int     `json:"ranks,omitempty"`    // absent: it has not started
	Replicas int     `json:"replicas,omitempty"` // of each rank
	Live     [][]int `json:"live,omitempty"`     // for each rank the replicas that run; absent with one replica
}

func printJobs(c *cli.Context, jobs []submit.RunningJob) error {
	if !c.Bool("json") {
		return cmdline.Coloured(c.App.Writer, func(w io.Writer) error { return jobsTable(w, jobs) })
	}
	out := json.NewEncoder(c.App.Writer)
	for _, j := range jobs {
		var hosts []string
		for _, n := range j.Hosts {
			hosts = append(hosts, n.String())
		}
		if err := out.Encode(jobLine{j.ID, j.State, j.By, j.Processes, hosts, j.Age.Seconds(), j.Argv, j.Ranks, j.Replicas, j.Live}); err != nil {
			return err
		}
	}
	return nil
}

func jobsTable(w io.Writer, jobs []submit.RunningJob) error {
	table := printable.NewTable(w)
	table.Row("job", "state", "by", "processes", "live", "hosts", "age", "program")
	for _, j := range jobs {
		table.Row(j.ID, j.State, j.By, j.Processes, liveText(j), len(j.Hosts), j.Age.Round(time.Second), programText(j.Argv))
	}
	return table.Flush()
}

// maxLacking bounds the ranks that a line of the table names.
const maxLacking = 3

// liveText says how many replicas of a job's ranks run, and which are left of the ranks that lack some.
func liveText(j submit.RunningJob) string {
	if j.Live == nil {
		return "-"
	}
	live, lacking := 0, 0
	left := ""
	for rank, replicas := range j.Live {
		live += len(replicas)
		if len(replicas) == j.Replicas {
			continue
		}
		switch lacking++; {
		case lacking > maxLacking:
		case len(replicas) == 0:
			left += fmt.Sprintf("; rank %d has none", rank)
		default:
			left += fmt.Sprintf("; rank %d has %s", rank, strings.Trim(fmt.Sprint(replicas), "[]"))
		}
	}
	if lacking > maxLacking {
		left += fmt.Sprintf("; %d more ranks lack some", lacking-maxLacking)
	}
	return fmt.Sprintf("%d of %dx%d%s", live, j.Ranks, j.Replicas, left)
}
