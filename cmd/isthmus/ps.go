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
}

func printJobs(c *cli.Context, jobs []submit.RunningJob) error {
	out := json.NewEncoder(c.App.Writer)
	table := tabwriter.NewWriter(c.App.Writer, 0, 0, 2, ' ', 0)
	if !c.Bool("json") {
		fmt.Fprintln(table, "job\tstate\tby\tprocesses\thosts\tage\tprogram")
	}
	for _, j := range jobs {
		var hosts []string
		for _, n := range j.Hosts {
			hosts = append(hosts, n.String())
		}
		if c.Bool("json") {
			if err := out.Encode(jobLine{j.ID, j.State, j.By, j.Processes, hosts, j.Age.Seconds(), j.Argv}); err != nil {
				return err
			}
			continue
		}
		program := "-"
		if len(j.Argv) > 0 {
			program = strings.Join(j.Argv, " ")
			program = program[:min(len(program), 60)]
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%d\t%v\t%s\n", j.ID, j.State, j.By, j.Processes, len(hosts), j.Age.Round(time.Second), program)
	}
	return table.Flush()
}
