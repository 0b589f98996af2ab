package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
	"github.com/isthmus-grid/isthmus/internal/job/ranks"
	"github.com/isthmus-grid/isthmus/launch/submit"
	"github.com/isthmus-grid/isthmus/overlay"
)

// helperFlag names the helper through which a command sees the grid.
func helperFlag() cli.Flag {
	return &cli.StringFlag{Name: "helper", EnvVars: []string{ranks.EnvHelper}, Usage: "`SOCKET` of this node's helper"}
}

// gridOf returns the grid that a command sees.
func gridOf(c *cli.Context) (*submit.Grid, error) {
	if c.String("helper") == "" {
		return nil, cmdline.Usage(c.Command.Name + ": name this node's helper with --helper or " + ranks.EnvHelper)
	}
	return submit.Dial(c.String("helper"))
}

// psCommand is "isthmus ps": the jobs of the grid.
func psCommand() *cli.Command {
	return &cli.Command{
		Name:  "ps",
		Usage: "list the jobs that are starting or running on the grid's hosts",
		Flags: []cli.Flag{helperFlag(), &cli.BoolFlag{Name: "json", Usage: "print one object per line and job"}},
		Action: func(c *cli.Context) error {
			grid, err := gridOf(c)
			if err != nil {
				return err
			}
			defer grid.Close()
			jobs, silent, err := grid.Jobs(c.Context)
			if err != nil {
				return fmt.Errorf("ps: %w", err)
			}
			if err := printJobs(c, jobs); err != nil {
				return err
			}
			for node, why := range silent {
				fmt.Fprintf(os.Stderr, "isthmus: %s did not answer: %v\n", node, why)
			}
			return nil
		},
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
	out := json.NewEncoder(c.App.Writer)
	table := tabwriter.NewWriter(c.App.Writer, 0, 0, 2, ' ', 0)
	if !c.Bool("json") {
		fmt.Fprintln(table, "job\tstate\tby\tprocesses\tlive\thosts\tage\tprogram")
	}
	for _, j := range jobs {
		var hosts []string
		for _, n := range j.Hosts {
			hosts = append(hosts, n.String())
		}
		if c.Bool("json") {
			if err := out.Encode(jobLine{j.ID, j.State, j.By, j.Processes, hosts, j.Age.Seconds(), j.Argv, j.Ranks, j.Replicas, j.Live}); err != nil {
				return err
			}
			continue
		}
		program := "-"
		if len(j.Argv) > 0 {
			program = strings.Join(j.Argv, " ")
			program = program[:min(len(program), 60)]
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\t%d\t%v\t%s\n", j.ID, j.State, j.By, j.Processes, liveText(j), len(hosts), j.Age.Round(time.Second), program)
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
