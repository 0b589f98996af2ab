package runjob

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
	"github.com/isthmus-grid/isthmus/internal/job/jobgroups"
	"github.com/isthmus-grid/isthmus/internal/job/ranks"
	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/launch/allocate"
	"github.com/isthmus-grid/isthmus/launch/profile"
	"github.com/isthmus-grid/isthmus/launch/submit"
	"github.com/isthmus-grid/isthmus/overlay"
)

// filesFailed returns the failure of a job whose program or files cannot be read here.
func filesFailed(c *cli.Context, err error) error {
	if _, is := errors.AsType[*cmdline.Failure](err); is {
		return err
	}
	return &cmdline.Failure{
		Cause: "run: " + err.Error(), Err: err, Verbose: c.Bool("verbose"),
		Next: "name the program and the --input files as ls does here; a program that is on the hosts already: --installed",
	}
}

// hostsOf returns the hosts that the command line names, itself or in a file.
func hostsOf(c *cli.Context) (hosts []submit.HostShare, err error) {
	switch {
	case c.IsSet("hosts") && c.IsSet("hostfile"):
		return nil, errors.New("give either --hosts or --hostfile")
	case c.IsSet("hosts"):
		if hosts, err = submit.ParseHosts(c.String("hosts")); err != nil {
			return nil, fmt.Errorf("--hosts: %w", err)
		}
	case c.IsSet("hostfile"):
		f, err := os.Open(c.String("hostfile"))
		if err != nil {
			return nil, fmt.Errorf("--hostfile: %w", err)
		}
		defer f.Close()
		if hosts, err = submit.ReadHostfile(f, c.String("hostfile")); err != nil {
			return nil, fmt.Errorf("--hostfile: %w", err)
		}
	}
	return hosts, nil
}

// gridJob returns the job of the command line, without what must be read or opened for it.
func gridJob(c *cli.Context) (*submit.Job, error) {
	wrong := func(format string, args ...any) (*submit.Job, error) {
		return nil, cmdline.Usage("run: " + fmt.Sprintf(format, args...))
	}
	j := &submit.Job{Argv: c.Args().Slice(), Strategy: c.String("strategy"), Survive: c.Bool("survive"), Wait: c.Duration("wait"), Queue: !c.IsSet("wait"), Hang: c.Duration("hang"), Fetch: c.StringSlice("fetch"),
		Place: allocate.Job{Ranks: c.Int("n"), Copies: c.Int("replicas"), CPU: int(c.Float64("cores") * 1000)}}
	if c.IsSet("size") {
		return wrong("--size goes with --ranks; over the grid, give the number of ranks with -n")
	}
	if err := checkStrategy(j.Strategy, c.IsSet("graph")); err != nil {
		return nil, err
	}
	var err error
	if c.IsSet("graph") {
		if j.Place.Graph, err = readGraph(c); err != nil {
			return nil, err
		}
	}
	if j.Hosts, err = hostsOf(c); err != nil {
		return wrong("%v", err)
	}
	if c.IsSet("profile") {
		if j.Profile, err = profile.ReadFile(c.String("profile")); err != nil {
			return nil, fmt.Errorf("run: --profile: %w", err)
		}
		useProgram(j)
	}
	if err := countRanks(c, j); err != nil {
		return nil, err
	}
	if len(j.Argv) == 0 {
		return wrong("no program to run")
	}
	if c.IsSet("hang") && (j.Hang < time.Second || j.Hang > submit.MaxHang) {
		return wrong("--hang %v: want 1s to %v", j.Hang, submit.MaxHang)
	}
	if err := setNeeds(c, j); err != nil {
		return nil, err
	}
	if err := setReplicas(c, j); err != nil {
		return nil, err
	}
	if err := setReplace(c, j); err != nil {
		return nil, err
	}
	if j.Groups, err = jobgroups.Parse(c.String("groups"), j.Place.Ranks); err != nil {
		return wrong("--groups: %v", err)
	}
	if j.Limits, err = limitsOf(c.StringSlice("limit")); err != nil {
		return wrong("--limit: %v", err)
	}
	if j.Env, err = environmentOf(append(os.Environ(), j.Env...), c.StringSlice("env"), j.Env); err != nil {
		return wrong("--env: %v", err)
	}
	if err := j.Place.Check(); err != nil {
		return wrong("%v", err)
	}
	if j.Key, err = jobkey.New(jobName(j)); err != nil {
		return nil, err
	}
	granted, err := grantFor(c, j.Key)
	j.Env = append(j.Env, granted...)
	return j, err
}

// setNeeds sets what the processes need, and how they communicate.
func setNeeds(c *cli.Context, j *submit.Job) error {
	wrong := func(format string, args ...any) error {
		return cmdline.Usage("run: " + fmt.Sprintf(format, args...))
	}
	var err error
	if j.Place.Pattern, err = allocate.ParsePattern(c.String("pattern")); err != nil {
		return wrong("--pattern: %v", err)
	}
	if c.IsSet("message") {
		size, err := profile.ParseBytes(c.String("message"))
		if err != nil || size > math.MaxInt32 {
			return wrong("--message %s: want the size of a message, such as 1MiB, below 2GiB", c.String("message"))
		}
		j.Place.Message = int(size)
	}
	if c.IsSet("memory") {
		size, err := profile.ParseBytes(c.String("memory"))
		if err != nil {
			return wrong("--memory: %v", err)
		}
		j.Place.Memory = int64(size)
	}
	return nil
}

// checkReplicas checks what is said of replicas by itself, wherever the job is to run.
func checkReplicas(c *cli.Context) error {
	if n := c.Int("replicas"); n < 1 {
		return cmdline.Usage(fmt.Sprintf("run: --replicas %d: want at least 1, which means no replication", n))
	}
	if name := c.String("replica-table"); !slices.Contains(submit.ReplicaTables, name) {
		return cmdline.Usage(fmt.Sprintf("run: --replica-table %s: want one of %s", name, strings.Join(submit.ReplicaTables, ", ")))
	}
	return nil
}

// setReplicas sets how replicas of ranks work together.
func setReplicas(c *cli.Context, j *submit.Job) error {
	together := []string{"replica-table", "send-deterministic"}
	for _, name := range append(together, "independent") {
		if c.IsSet(name) && j.Place.Copies < 2 {
			return cmdline.Usage(fmt.Sprintf("run: --%s is for jobs with replicas: give --replicas 2 or more, or omit it", name))
		}
	}
	j.Independent, j.ReplicaTable, j.SendDeterministic = c.Bool("independent"), c.String("replica-table"), c.Bool("send-deterministic")
	for _, name := range together {
		if j.Independent && c.IsSet(name) {
			return cmdline.Usage(fmt.Sprintf("run: --%s is for the message library, which --independent says the program does not use: omit one of them", name))
		}
	}
	if j.Survive && j.Place.Copies > 1 && !j.Independent {
		return cmdline.Usage("run: --survive: with --replicas the replicas of a rank go on for it, and a program cannot go on without a rank that has lost all of them: omit --survive")
	}
	j.PinRank0 = c.Bool("pin-rank0")
	if j.PinRank0 && (j.Profile != nil || len(j.Hosts) > 0 && j.Hosts[0].Ranks > 0) {
		return cmdline.Usage("run: --pin-rank0: --profile, or --hosts with numbers of ranks, says already where rank 0 runs: omit one of them")
	}
	return nil
}

// setReplace sets how many lost processes are replaced.
func setReplace(c *cli.Context, j *submit.Job) error {
	j.Replace = c.Int("replace")
	switch {
	case j.Replace < 0:
		return cmdline.Usage(fmt.Sprintf("run: --replace %d: want the number of processes that may be replaced, 0 for none", j.Replace))
	case j.Replace > 0 && j.Independent:
		return cmdline.Usage("run: --replace: with --independent there is no replica from which a new one could have its state: omit one of them")
	case j.Replace > submit.MaxNewcomers && j.Place.Copies > 1:
		return cmdline.Usage(fmt.Sprintf("run: --replace %d: with --replicas at most %d", j.Replace, submit.MaxNewcomers))
	case j.Replace > 0 && j.Profile != nil:
		return cmdline.Usage("run: --replace: a --profile says where each process runs, and knows none that replaces another: give --hosts or --strategy in its place")
	case j.Replace > 0 && c.Bool("show-map"):
		return cmdline.Usage("run: --replace: --show-map shows no processes that replace others: omit one of them")
	case j.Replace > allocate.MaxProcesses-j.Place.Ranks*j.Place.Copies:
		return cmdline.Usage(fmt.Sprintf("run: --replace %d: with %d processes at most %d", j.Replace, j.Place.Ranks*j.Place.Copies, allocate.MaxProcesses-j.Place.Ranks*j.Place.Copies))
	}
	return nil
}

// useProgram takes from the profile what the command line does not specify.
func useProgram(j *submit.Job) {
	p := j.Profile.Program
	if len(j.Argv) == 0 && p.Path != "" {
		j.Argv = append([]string{p.Path}, p.Args...)
	}
	j.Env = append(j.Env, p.Env...)
	j.Fetch = append(j.Fetch, p.Outputs...)
}

// countRanks determines the number of ranks: given once, or several times with the same value.
func countRanks(c *cli.Context, j *submit.Job) error {
	named, each, what := 0, 1, "" // each: how many of named a rank has
	switch {
	case j.Profile != nil:
		named, what = j.Profile.Processes(), "the profile"
	case j.Place.Graph != nil:
		named, what = j.Place.Graph.Tasks(), "the graph"
	case len(j.Hosts) > 0 && j.Hosts[0].Ranks > 0:
		for _, h := range j.Hosts {
			named += h.Ranks
		}
		each, what = max(1, j.Place.Copies), "--hosts"
	}
	switch {
	case named == 0 && !c.IsSet("n"):
		return cmdline.Usage("run: give the number of ranks with -n")
	case named > 0 && c.IsSet("n") && named != j.Place.Ranks*each:
		if each > 1 {
			return cmdline.Usage(fmt.Sprintf("run: %s has %d processes, which contradicts -n %d --replicas %d: they need %d", what, named, j.Place.Ranks, each, j.Place.Ranks*each))
		}
		return cmdline.Usage(fmt.Sprintf("run: %s has %d ranks, which contradicts -n %d", what, named, j.Place.Ranks))
	case named > 0 && !c.IsSet("n") && named%each != 0:
		return cmdline.Usage(fmt.Sprintf("run: %s has %d processes, which --replicas %d cannot share: want a multiple of %d", what, named, each, each))
	case named > 0:
		j.Place.Ranks = named / each
	}
	return nil
}

// jobName returns a name for the job of a program.
func jobName(j *submit.Job) string {
	if j.Profile != nil && j.Profile.Job != "" {
		return j.Profile.Job
	}
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.", r) {
			return r
		}
		return '-'
	}, strings.ToLower(filepath.Base(j.Argv[0])))
	name = strings.TrimLeft(name, "-_.")
	name = name[:min(len(name), 20)]
	if overlay.CheckName("job", name) != nil {
		return "job"
	}
	return name
}

// fetchFiles reads the files that the hosts need.
func fetchFiles(c *cli.Context, j *submit.Job) error {
	names := c.StringSlice("input")
	if j.Profile != nil {
		names = append(names, j.Profile.Program.Inputs...)
	}
	files, err := submit.Collect(names)
	if err != nil {
		return err
	}
	j.Files = files
	if c.Bool("installed") {
		return nil
	}
	name, program, err := submit.Program(j.Argv[0])
	if err != nil { // ends as it would without a helper
		return programFailed(c.Bool("verbose"), j.Argv[0], &ranks.ExitError{Status: ranks.StartStatus(err), Err: err})
	}
	if program != nil {
		libraries, err := stageLibraries(j, program.Path)
		if err != nil {
			return err
		}
		for _, f := range append(libraries, *program) {
			files = slices.DeleteFunc(files, func(o submit.File) bool { return o.Name == f.Name })
			files = append(files, f)
		}
	}
	j.Files, j.Argv = files, append([]string{name}, j.Argv[1:]...)
	return nil
}
