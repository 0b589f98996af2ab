// Package runjob is `isthmus run`, `isthmus attach` and `isthmus job`: it parses the job, gets a
// grant for it, and has the ranks started, here or over the grid, by this process or by a driver that
// outlives it. How ranks run and hosts are chosen is up to internal/job/ranks and launch. It keeps no
// state; that of detached jobs is launch/detached's.
package runjob

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/cmd/internal/ask"
	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
	"github.com/isthmus-grid/isthmus/cmd/internal/runmap"
	"github.com/isthmus-grid/isthmus/internal/job/jobgroups"
	"github.com/isthmus-grid/isthmus/internal/job/ranks"
	"github.com/isthmus-grid/isthmus/internal/pki/grant"
	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
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
			"Over the grid, through this node's helper, where there is one: it books hosts, copies the program and the --input files there, and starts the ranks:\n\n" +
			"  isthmus run -n 40 ./program\n" +
			"  isthmus run --hosts n1@paris:8,n2@lyon:8 --input mesh.dat --fetch 'out.*' ./program mesh.dat\n" +
			"  isthmus run -n 40 --dry-run ./program       only shows where it would run\n\n" +
			"A program with a slash in its name is copied to the hosts; any other is looked up in PATH there. --strategy chooses the hosts, nearest first: spread gives\n" +
			"each one process, then a second; concentrate fills each; auto looks for hosts near each other and, with --message 1MiB, for paths with high bandwidth. With --replicas it is\n" +
			"the default, and has each set of replicas at a site of its own where there is room.\n\n" +
			"By hand, on nodes that each have a helper, with the same key and the same size everywhere:\n\n" +
			"  site a:  isthmus run --key myjob.key --size 8 --ranks 0-3 ./program\n" +
			"  site b:  isthmus run --key myjob.key --size 8 --ranks 4-7 ./program\n\n" +
			"Rank 0 reads standard input. When a process fails, the others are ended, and the exit status is that of the first that failed: its own,\n" +
			"128 + signal, or as in shells 127 when there is no such program, and 126 when it cannot be started. A signal is forwarded as SIGTERM and, 2 s later, as SIGKILL; over the grid\n" +
			"a second signal is forwarded as SIGKILL at once.\n" +
			"With --survive the others continue, for programs that tolerate the failure of a process (see the library's documentation, \"Failures\"):\n" +
			"the exit status is then that of the first process that exited with a status other than 0, or 0 if processes were only killed and one exited with 0.\n\n" +
			"With --detach the job outlives this command: it goes on in a process of its own, the driver, whose output isthmus attach shows. Rank 0 reads --stdin, or nothing.\n" +
			"The command returns when the job has started; if that fails, it says why, with the exit status that it would have without --detach.\n\n" +
			"With --show-map it prints to standard error, at the end, where the ranks ran and which paths their messages took.",
		ArgsUsage: "PROGRAM [ARGUMENT...]",
		Flags: append([]cli.Flag{
			&cli.IntFlag{Name: "n", Aliases: []string{"np"}, Usage: "`NUMBER` of ranks", DefaultText: "none"},
			&cli.StringFlag{Name: "ranks", Usage: "instead of -n: the ranks that run on this node, `FIRST-LAST`"},
			&cli.IntFlag{Name: "size", Usage: "with --ranks: `NUMBER` of ranks of the whole job", DefaultText: "the last rank of this node + 1"},
			&cli.StringFlag{Name: "key", Usage: "`FILE` with the job's key (isthmus job new); the job is started by hand, and -n or --ranks are the ranks of this node"},
			&cli.StringFlag{Name: "groups", Usage: "the groups of the ranks, in rank order: `NAME:COUNT,...`, such as master:1,workers:7; the same on all nodes"},
			ask.HelperFlag("`SOCKET` of this node's helper, or none; without one, all ranks are on this node"),
			&cli.StringFlag{Name: "label", Value: hostname(), DefaultText: "this host's name", Usage: "output is tagged [`LABEL`:rank]; empty for no tags; over the grid, the tag is [site/host:rank]"},
			&cli.StringFlag{Name: "output", Usage: "instead of tagged lines: json for one object per line of output, or `FOLDER` for a file per rank and stream"},
			&cli.BoolFlag{Name: "survive", Usage: "do not end the other processes when one fails"},
			&cli.BoolFlag{Name: "show-map", Usage: "show at the end where the ranks ran, and the paths between sites that were used"},
			&cli.BoolFlag{Name: "json", Usage: "with --show-map or --dry-run: print objects instead of tables"},
			&cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}, Usage: "log each step over the grid, and print the chain of causes of a failure"},
		}, slices.Concat(detachFlags(), grantFlags(), gridFlags())...),
		Action: func(c *cli.Context) error {
			if c.Bool("json") && !c.Bool("show-map") && !c.Bool("dry-run") {
				return cmdline.Usage("run: --json goes with --show-map or --dry-run; for the output of the processes use --output json")
			}
			if v := os.Getenv(ranks.EnvReport); v != "" && c.Bool("show-map") {
				return cmdline.Usage(fmt.Sprintf("run: --show-map sets %s itself, but it is already set to %s; unset it, or omit --show-map", ranks.EnvReport, v))
			}
			if err := checkReplicas(c); err != nil {
				return err
			}
			if err := checkDetach(c); err != nil {
				return err
			}
			overGrid := ask.Helper(c) != "" && !c.IsSet("ranks") && !c.IsSet("key")
			switch {
			case c.Bool("detach") && !c.Bool(driverFlag):
				return detach(c)
			case overGrid:
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
			if job.Env, err = hereWithLibraries(job.Argv[0], job.Env); err != nil {
				return err
			}
			con, err := newConsole(c, job.Key.ID())
			if err != nil {
				return err
			}
			return con.end(programFailed(c.Bool("verbose"), job.Argv[0], runLocally(c, con, job)))
		},
	}
}

// runLocally runs the ranks of this node, and shows what is wanted of them.
func runLocally(c *cli.Context, con *console, job ranks.Job) (err error) {
	job.Started = con.started
	if job.Output, err = con.output(c.String("output")); err != nil {
		return err
	}
	con.say(whereLocal(job))
	if c.Bool("show-map") {
		return runWithMap(c, con, job)
	}
	return runHere(c.Context, job)
}

// whereLocal says where the ranks of a job that does not go through the grid's launcher run.
func whereLocal(j ranks.Job) string {
	if j.Count < j.Size {
		return fmt.Sprintf("by hand: ranks %d to %d of %d on this host, through the helper at %s", j.First, j.First+j.Count-1, j.Size, j.Helper)
	}
	return "local: " + plural(j.Count, "rank") + " on this host"
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// runHere runs the ranks of this node. Its errors carry the exit status.
func runHere(ctx context.Context, job ranks.Job) error {
	err := ranks.Run(ctx, job)
	if closeErr := job.Output.Close(); err == nil && closeErr != nil {
		return fmt.Errorf("run: the output: %w", closeErr)
	}
	return err
}

// programFailed adds what to do to the error of a job whose program is not here.
func programFailed(isVerbose bool, program string, err error) error {
	exit, ok := errors.AsType[*ranks.ExitError](err)
	if !ok || !slices.ContainsFunc([]error{fs.ErrNotExist, exec.ErrNotFound, fs.ErrPermission, syscall.ENOEXEC}, func(e error) bool { return errors.Is(err, e) }) {
		return err
	}
	f := &cmdline.Failure{Cause: "run: " + exit.Error(), Err: err, Verbose: isVerbose, Next: "ls -l " + program + ": a name with a slash begins at the working folder, or at /"}
	_, statErr := os.Stat(program)
	switch {
	case errors.Is(err, syscall.ENOEXEC), errors.Is(err, fs.ErrNotExist) && statErr == nil && strings.Contains(program, "/"):
		f.Next = "file " + program + " and head -1 " + program + " say what it needs, uname -m what this host is"
	case errors.Is(err, fs.ErrPermission):
		f.Next = "chmod +x " + program
	case !strings.Contains(program, "/"):
		f.Next = "./" + program + " if it is in this folder; any other must be in PATH"
	}
	return f
}

// runWithMap makes the ranks write their reports to a folder of our own, and shows them at the end,
// also if the job failed, when they matter most.
func runWithMap(c *cli.Context, con *console, job ranks.Job) error {
	dir, err := os.MkdirTemp("", "isthmus-map-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	job.Env = append(job.Env, ranks.EnvReport+"="+dir)
	runErr := runHere(c.Context, job)
	m, err := runmap.Read(dir, job.First, job.Count, job.Size)
	if err == nil && c.Bool("json") {
		err = m.WriteJSON(con.stderr)
	} else if err == nil {
		err = m.Write(con.stderr)
	}
	if runErr != nil {
		return runErr // its exit status takes precedence
	}
	return err
}

func jobOf(c *cli.Context) (ranks.Job, error) {
	j := ranks.Job{
		Argv: c.Args().Slice(), Count: c.Int("n"), Size: c.Int("size"), Helper: ask.Helper(c), Label: c.String("label"), Survive: c.Bool("survive"),
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
