// Package runjob is `isthmus run` and `isthmus job`: it parses the job, gets a grant for it, and
// has the ranks started, here or over the grid. How ranks run and hosts are chosen is up to
// internal/job/ranks and launch. It keeps no state.
package runjob

import (
	"context"
	"fmt"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
	"github.com/isthmus-grid/isthmus/cmd/internal/runmap"
	"github.com/isthmus-grid/isthmus/internal/job/jobgroups"
	"github.com/isthmus-grid/isthmus/internal/job/ranks"
	"github.com/isthmus-grid/isthmus/internal/pki/grant"
	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// KeyCommand is "isthmus job": the secret that a job's processes share.
func KeyCommand() *cli.Command {
	return &cli.Command{
		Name:  "job",
		Usage: "create the key of a job, and grants for it",
		Subcommands: []*cli.Command{{
			Name:        "new",
			Usage:       "print a new key for the job NAME",
			Description: "Keep it in a file that only you can read and give the same file to `isthmus run` at every site:\n\n  (umask 077; isthmus job new myjob > myjob.key)",
			ArgsUsage:   "NAME",
			Action: func(c *cli.Context) error {
				if err := cmdline.Words(c, "job new", 1); err != nil {
					return err
				}
				k, err := jobkey.New(c.Args().First())
				if err != nil {
					return cmdline.Usage("job new: " + err.Error())
				}
				fmt.Fprintln(c.App.Writer, k)
				return nil
			},
		}, jobGrantCommand()},
	}
}

// Command is "isthmus run": a job over hosts of the grid, a whole job on this node, or this node's
// share.
func Command() *cli.Command {
	return &cli.Command{
		Name:  "run",
		Usage: "start a job",
		Description: "On one machine, without any daemon:\n\n  isthmus run -n 4 ./program\n\n" +
			"Over the grid, through this node's helper, which ISTHMUS_HELPER or --helper names: it books hosts, copies the program and the --input files there, and starts the ranks:\n\n" +
			"  isthmus run -n 40 ./program\n" +
			"  isthmus run --hosts n1@paris:8,n2@lyon:8 --input mesh.dat --fetch 'out.*' ./program mesh.dat\n" +
			"  isthmus run -n 40 --dry-run ./program       only shows where it would run\n\n" +
			"A program with a slash in its name is copied to the hosts; any other is looked up in PATH there. --strategy chooses the hosts, nearest first: spread gives\n" +
			"each one process, then a second; concentrate fills each; auto looks for hosts near each other and, with --message 1MiB, for paths with high bandwidth.\n\n" +
			"By hand, on nodes that each have a helper, with the same key and the same size everywhere:\n\n" +
			"  site a:  isthmus run --key myjob.key --size 8 --ranks 0-3 ./program\n" +
			"  site b:  isthmus run --key myjob.key --size 8 --ranks 4-7 ./program\n\n" +
			"Rank 0 reads standard input. When a process fails, the others are ended, and the exit status is that of the first that failed: its own,\n" +
			"128 + signal, or 126 or 127 when it could not be started. A signal is forwarded as SIGTERM and, 2 s later, as SIGKILL; over the grid\n" +
			"a second signal is forwarded as SIGKILL at once.\n" +
			"With --survive the others continue, for programs that tolerate the failure of a process (see the library's documentation, \"Failures\"):\n" +
			"the exit status is then that of the first process that exited with a status other than 0, or 0 if processes were only killed and one exited with 0.\n\n" +
			"With --show-map it prints to standard error, at the end, where the ranks ran and which paths their messages took.",
		ArgsUsage: "PROGRAM [ARGUMENT...]",
		Flags: append([]cli.Flag{
			&cli.IntFlag{Name: "n", Usage: "`NUMBER` of ranks", DefaultText: "none"},
			&cli.StringFlag{Name: "ranks", Usage: "instead of -n: the ranks that run on this node, `FIRST-LAST`"},
			&cli.IntFlag{Name: "size", Usage: "with --ranks: `NUMBER` of ranks of the whole job", DefaultText: "the last rank of this node + 1"},
			&cli.StringFlag{Name: "key", Usage: "`FILE` with the job's key (isthmus job new); the job is started by hand, and -n or --ranks are the ranks of this node"},
			&cli.StringFlag{Name: "groups", Usage: "the groups of the ranks, in rank order: `NAME:COUNT,...`, such as master:1,workers:7; the same on all nodes"},
			&cli.StringFlag{Name: "helper", EnvVars: []string{ranks.EnvHelper}, Usage: "`SOCKET` of this node's helper; without one, all ranks are on this node"},
			&cli.StringFlag{Name: "label", Value: hostname(), DefaultText: "this host's name", Usage: "output is tagged [`LABEL`:rank]; empty for no tags; over the grid, the tag is [site/host:rank]"},
			&cli.StringFlag{Name: "output", Usage: "instead of tagged lines: json for one object per line of output, or `FOLDER` for a file per rank and stream"},
			&cli.BoolFlag{Name: "survive", Usage: "do not end the other processes when one fails"},
			&cli.BoolFlag{Name: "show-map", Usage: "show at the end where the ranks ran, and the paths between sites that were used"},
			&cli.BoolFlag{Name: "json", Usage: "with --show-map or --dry-run: print objects instead of tables"},
		}, append(grantFlags(), gridFlags()...)...),
		Action: func(c *cli.Context) error {
			if c.Bool("json") && !c.Bool("show-map") && !c.Bool("dry-run") {
				return cmdline.Usage("run: --json goes with --show-map or --dry-run; for the output of the processes use --output json")
			}
			if v := os.Getenv(mpilib.EnvReport); v != "" && c.Bool("show-map") {
				return cmdline.Usage(fmt.Sprintf("run: --show-map sets %s itself, but it is already set to %s; unset it, or omit --show-map", mpilib.EnvReport, v))
			}
			if c.String("helper") != "" && !c.IsSet("ranks") && !c.IsSet("key") {
				return runOverGrid(c)
			}
			for _, name := range gridFlagNames() {
				if c.IsSet(name) {
					return cmdline.Usage(fmt.Sprintf("run: --%s is for jobs over the grid: name this node's helper with --helper or %s, and omit --ranks and --key", name, ranks.EnvHelper))
				}
			}
			job, err := jobOf(c)
			if err != nil {
				return err
			}
			if job.Output, err = ranks.NewOutput(c.String("output"), os.Stdout, os.Stderr); err != nil {
				return fmt.Errorf("run: --output: %w", err)
			}
			if c.Bool("show-map") {
				return runWithMap(c, job)
			}
			return runHere(c.Context, job)
		},
	}
}

// runHere runs the ranks of this node. Its errors carry the exit status.
func runHere(ctx context.Context, job ranks.Job) error {
	err := ranks.Run(ctx, job)
	if closeErr := job.Output.Close(); err == nil && closeErr != nil {
		return fmt.Errorf("run: the output: %w", closeErr)
	}
	return err
}

// runWithMap makes the ranks write their reports to a folder of our own, and shows them at the end,
// also if the job failed, when they matter most.
func runWithMap(c *cli.Context, job ranks.Job) error {
	dir, err := os.MkdirTemp("", "isthmus-map-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	job.Env = append(job.Env, mpilib.EnvReport+"="+dir)
	runErr := runHere(c.Context, job)
	m, err := runmap.Read(dir, job.First, job.Count, job.Size)
	if err == nil && c.Bool("json") {
		err = m.WriteJSON(c.App.ErrWriter)
	} else if err == nil {
		err = m.Write(c.App.ErrWriter)
	}
	if runErr != nil {
		return runErr // its exit status takes precedence
	}
	return err
}

func jobOf(c *cli.Context) (ranks.Job, error) {
	j := ranks.Job{
		Argv: c.Args().Slice(), Count: c.Int("n"), Size: c.Int("size"), Helper: c.String("helper"), Label: c.String("label"), Survive: c.Bool("survive"),
		Stdin: os.Stdin,
	}
	if c.IsSet("n") == c.IsSet("ranks") {
		return j, cmdline.Usage("run: give either -n or --ranks")
	}
	var err error
	if c.IsSet("ranks") {
		if j.First, j.Count, err = ranks.ParseRanks(c.String("ranks")); err != nil {
			return j, cmdline.Usage("run: --ranks: " + err.Error())
		}
	}
	if j.Size == 0 {
		j.Size = j.First + j.Count
	}
	if j.Groups, err = jobgroups.Parse(c.String("groups"), j.Size); err != nil {
		return j, cmdline.Usage("run: --groups: " + err.Error())
	}
	if c.IsSet("key") {
		j.Key, err = jobkey.Load(c.String("key"))
	} else if j.Count < j.Size {
		return j, cmdline.Usage("run: the job spans several nodes, which all need the same --key; create one with: isthmus job new NAME")
	} else {
		j.Key, err = jobkey.New("local")
	}
	if err != nil {
		return j, err
	}
	if err := j.Check(); err != nil {
		return j, cmdline.Usage("run: " + err.Error())
	}
	if j.Helper != "" {
		asked := c.IsSet("user-cert") || c.IsSet("user-key") || c.IsSet("project") || c.IsSet("valid")
		if asked || os.Getenv(grant.Env) == "" { // else the environment has one
			j.Env, err = grantFor(c, j.Key)
		}
		return j, err
	}
	for _, f := range grantFlags() {
		if c.IsSet(f.Names()[0]) {
			return j, cmdline.Usage(fmt.Sprintf("run: --%s is for jobs with a helper: without a helper, nothing checks on whose behalf a job runs", f.Names()[0]))
		}
	}
	return j, nil
}

func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return "localhost"
	}
	return name
}
