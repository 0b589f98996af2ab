package runjob

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
	"github.com/isthmus-grid/isthmus/cmd/internal/runmap"
	"github.com/isthmus-grid/isthmus/internal/job/jobgroups"
	"github.com/isthmus-grid/isthmus/internal/job/ranks"
	"github.com/isthmus-grid/isthmus/internal/pki/grant"
	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/launch/allocate"
	"github.com/isthmus-grid/isthmus/launch/nodeservice/gatepb"
	"github.com/isthmus-grid/isthmus/launch/profile"
	"github.com/isthmus-grid/isthmus/launch/submit"
	"github.com/isthmus-grid/isthmus/mpilib"
	"github.com/isthmus-grid/isthmus/overlay"
)

// gridFlags are those of "isthmus run" that apply over the grid only.
func gridFlags() []cli.Flag {
	const category = "over the grid"
	return []cli.Flag{
		&cli.StringFlag{Category: category, Name: "strategy", Aliases: []string{"a"}, Usage: "how hosts are chosen: `" + strings.Join(allocate.Strategies, "|") + "`", Value: allocate.Strategies[0]},
		&cli.StringFlag{Category: category, Name: "hosts", Usage: "run on these hosts: `NODE@SITE:RANKS,...`, ranks are numbered in this order; without :RANKS the strategy distributes them"},
		&cli.StringFlag{Category: category, Name: "profile", Usage: "`FILE` that describes the groups of processes and what they need"},
		&cli.IntFlag{Category: category, Name: "replicas", Aliases: []string{"r", "copies"}, Value: 1, Usage: "`NUMBER` of replicas of each rank, on different hosts: the job goes on while each rank has one"},
		&cli.StringFlag{Category: category, Name: "replica-table", Value: submit.ReplicaTables[0], Usage: "with --replicas: which replicas of a rank send to those of another, `" + strings.Join(submit.ReplicaTables, "|") + "`: each to the one of its number, or the first one to all"},
		&cli.BoolFlag{Category: category, Name: "send-deterministic", Usage: "with --replicas: what the program sends does not depend on the order in which messages arrive, so that replicas wait less for each other"},
		&cli.BoolFlag{Category: category, Name: "pin-rank0", Usage: "run rank 0 once, on this host, or the nearest one that takes jobs, whatever --replicas is: the job ends with it"},
		&cli.BoolFlag{Category: category, Name: "independent", Usage: "with --replicas: replicas are processes of their own, which do not use the message library; the output of each is printed"},
		&cli.StringFlag{Category: category, Name: "pattern", Value: allocate.Dense.String(), Usage: "for auto: which ranks communicate, `dense|neighbour|master`"},
		&cli.StringFlag{Category: category, Name: "message", Usage: "for auto: `SIZE` of the job's messages, such as 1MiB, so that the bandwidth between sites counts too; without it, only latency counts"},
		&cli.StringFlag{Category: category, Name: "memory", Usage: "`SIZE` that each process needs, such as 2GiB"},
		&cli.Float64Flag{Category: category, Name: "cores", Usage: "`NUMBER` that each process needs"},
		&cli.StringSliceFlag{Category: category, Name: "limit", Usage: "`NAME=VALUE`: a resource limit for each process, as in setrlimit(2): as, core, cpu, data, fsize, memlock, nofile, nproc or stack"},
		&cli.DurationFlag{Category: category, Name: "wait", Usage: "`HOW-LONG` to wait for hosts when there are too few"},
		&cli.DurationFlag{Category: category, Name: "hang", Usage: "`HOW-LONG` a host, or the path to it, may be silent before its processes are considered dead; at most 1h", DefaultText: "5s"},
		&cli.BoolFlag{Category: category, Name: "installed", Usage: "the program is already on the hosts under the same name: do not copy it"},
		&cli.StringSliceFlag{Category: category, Name: "input", Usage: "`FILE` or folder to copy to each host, into the working folder of the processes"},
		&cli.StringSliceFlag{Category: category, Name: "fetch", Usage: "`FILES` to copy back from each host at the end; a pattern such as 'out.*'"},
		&cli.StringFlag{Category: category, Name: "fetch-to", Value: ".", Usage: "`FOLDER` for them; they become SITE/NODE/FILE in it"},
		&cli.StringSliceFlag{Category: category, Name: "env", Usage: "`NAME[=VALUE]` for the environment of the processes; without =VALUE, the value of the variable here"},
		&cli.BoolFlag{Category: category, Name: "dry-run", Usage: "show where the job would run, without starting it"},
		&cli.StringFlag{Category: category, Name: "mtbf", Usage: "with --dry-run and --walltime: show how likely the job is to fail with 1 to 4 replicas, if a host fails every `TIME` on average, such as 30d"},
		&cli.StringFlag{Category: category, Name: "walltime", Usage: "with --dry-run and --mtbf: the `TIME` that the job takes, such as 24h"},
		&cli.BoolFlag{Category: category, Name: "verbose", Aliases: []string{"v"}, Usage: "log each step"},
	}
}

// gridFlagNames returns their names.
func gridFlagNames() []string {
	var names []string
	for _, f := range gridFlags() {
		names = append(names, f.Names()[0])
	}
	return names
}

// runOverGrid is "isthmus run" with a helper.
func runOverGrid(c *cli.Context) error {
	job, err := gridJob(c)
	if err != nil {
		return err
	}
	grid, err := submit.Dial(c.String("helper"))
	if err != nil {
		return fmt.Errorf("run: %w", err)
	}
	defer grid.Close()
	if c.Bool("dry-run") {
		return dryRun(c, grid, job)
	}
	if err := fetchFiles(c, job); err != nil {
		return fmt.Errorf("run: %w", err)
	}
	if job.Output, err = ranks.NewOutput(c.String("output"), os.Stdout, os.Stderr); err != nil {
		return fmt.Errorf("run: --output: %w", err)
	}
	job.Stdin = standardInput()
	var stop func()
	job.Signals, stop = endSignals()
	defer stop()
	tell := &narrator{verbose: c.Bool("verbose")}
	job.Progress = func(p submit.Progress) {
		if line := tell.line(p, time.Now()); line != "" {
			fmt.Fprintln(os.Stderr, "isthmus:", line)
		}
	}
	if c.Bool("show-map") {
		return submitWithMap(c, grid, job)
	}
	_, err = submitJob(c, grid, job)
	return err
}

// submitJob runs the job and handles what it leaves behind.
func submitJob(c *cli.Context, grid *submit.Grid, job *submit.Job) (*submit.Result, error) {
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
			err = fmt.Errorf("run: %w", err)
		}
		return r, err // its exit status takes precedence
	case closeErr != nil:
		return r, fmt.Errorf("run: the output: %w", closeErr)
	case fetchErr != nil:
		return r, fmt.Errorf("run: --fetch: %w", fetchErr)
	}
	if c.Bool("verbose") {
		fmt.Fprintf(os.Stderr, "isthmus: the job succeeded; %d bytes of files were sent to %d hosts\n", r.Staged, len(r.Places))
	}
	return r, nil
}

// submitWithMap makes the ranks leave reports that are fetched, and shows them at the end.
func submitWithMap(c *cli.Context, grid *submit.Grid, job *submit.Job) error {
	dir, err := os.MkdirTemp("", "isthmus-map-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	job.Env = append(job.Env, mpilib.EnvReport+"="+runmap.ReportName)
	job.Fetch = append(job.Fetch, runmap.ReportName)
	maps := &submit.Folder{Dir: dir}
	job.FetchTo = maps
	r, runErr := submitJob(c, grid, job)
	maps.Close() // the map shows a missing report
	if r == nil || len(r.Places) == 0 {
		return runErr
	}
	nodes := map[int]string{}
	for rank, node := range r.Sources {
		nodes[rank] = node.String()
	}
	m, err := runmap.ReadHosts(dir, nodes, job.Place.Ranks)
	if err == nil && c.Bool("json") {
		err = m.WriteJSON(c.App.ErrWriter)
	} else if err == nil {
		err = m.Write(c.App.ErrWriter)
	}
	if runErr != nil {
		return runErr
	}
	return err
}

// reports is a Fetcher that separates the reports from other files.
type reports struct{ to, others submit.Fetcher }

func (r *reports) byName(name string) submit.Fetcher {
	if name == runmap.ReportName {
		return r.to
	}
	return r.others
}

// Piece implements submit.Fetcher.
func (r *reports) Piece(from overlay.NodeID, name string, mode os.FileMode, data []byte, end bool) error {
	return r.byName(name).Piece(from, name, mode, data, end)
}

// Fail implements submit.Fetcher.
func (r *reports) Fail(from overlay.NodeID, name string, why error) {
	r.byName(name).Fail(from, name, why)
}

// Drop implements submit.Fetcher.
func (r *reports) Drop(from overlay.NodeID) {
	r.to.Drop(from)
	r.others.Drop(from)
}

// dryRun shows where the job would run.
func dryRun(c *cli.Context, grid *submit.Grid, job *submit.Job) error {
	risk, err := riskOf(c, job.Place.Ranks)
	if err != nil {
		return err
	}
	plan, err := submit.Plan(c.Context, grid, job)
	if err != nil {
		return fmt.Errorf("run: %w", err)
	}
	plan.Risk = risk
	if c.Bool("json") {
		return json.NewEncoder(c.App.Writer).Encode(plan)
	}
	return plan.WriteTable(c.App.Writer)
}

// gridJob returns the job of the command line, without what must be read or opened for it.
func gridJob(c *cli.Context) (*submit.Job, error) {
	wrong := func(format string, args ...any) (*submit.Job, error) {
		return nil, cmdline.Usage("run: " + fmt.Sprintf(format, args...))
	}
	j := &submit.Job{Argv: c.Args().Slice(), Strategy: c.String("strategy"), Survive: c.Bool("survive"), Wait: c.Duration("wait"), Hang: c.Duration("hang"), Fetch: c.StringSlice("fetch"),
		Place: allocate.Job{Ranks: c.Int("n"), Copies: c.Int("replicas"), CPU: int(c.Float64("cores") * 1000)}}
	if c.IsSet("size") {
		return wrong("--size goes with --ranks; over the grid, give the number of ranks with -n")
	}
	if !slices.Contains(allocate.Strategies, j.Strategy) {
		return wrong("--strategy %s: want one of %s", j.Strategy, strings.Join(allocate.Strategies, ", "))
	}
	var err error
	if c.IsSet("hosts") {
		if j.Hosts, err = submit.ParseHosts(c.String("hosts")); err != nil {
			return wrong("--hosts: %v", err)
		}
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
	if err := setReplicas(c, j); err != nil {
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
	if !slices.Contains(submit.ReplicaTables, j.ReplicaTable) {
		return cmdline.Usage(fmt.Sprintf("run: --replica-table %s: want one of %s", j.ReplicaTable, strings.Join(submit.ReplicaTables, ", ")))
	}
	j.PinRank0 = c.Bool("pin-rank0")
	if j.PinRank0 && (j.Profile != nil || len(j.Hosts) > 0 && j.Hosts[0].Ranks > 0) {
		return cmdline.Usage("run: --pin-rank0: --profile, or --hosts with numbers of ranks, says already where rank 0 runs: omit one of them")
	}
	if j.Place.Copies > 1 && j.Profile != nil {
		return cmdline.Usage("run: --replicas: a --profile says where each process runs, and knows no replicas: give --hosts or --strategy in its place")
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
	named, what := 0, ""
	switch {
	case j.Profile != nil:
		named, what = j.Profile.Processes(), "the profile"
	case len(j.Hosts) > 0 && j.Hosts[0].Ranks > 0:
		for _, h := range j.Hosts {
			named += h.Ranks
		}
		what = "--hosts"
	}
	switch {
	case named == 0 && !c.IsSet("n"):
		return cmdline.Usage("run: give the number of ranks with -n")
	case named > 0 && c.IsSet("n") && named != j.Place.Processes():
		if j.Place.Copies > 1 {
			return cmdline.Usage(fmt.Sprintf("run: %s has %d processes, which contradicts -n %d --replicas %d: they need %d", what, named, j.Place.Ranks, j.Place.Copies, j.Place.Processes()))
		}
		return cmdline.Usage(fmt.Sprintf("run: %s has %d ranks, which contradicts -n %d", what, named, j.Place.Ranks))
	case named > 0 && !c.IsSet("n") && named%max(1, j.Place.Copies) != 0:
		return cmdline.Usage(fmt.Sprintf("run: %s has %d processes, which --replicas %d cannot share: want a multiple of %d", what, named, j.Place.Copies, j.Place.Copies))
	case named > 0 && !c.IsSet("n"):
		j.Place.Ranks = named / max(1, j.Place.Copies)
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

// placeVariables describe a process's location, or belong to one job, so they are not passed on.
var placeVariables = []string{ranks.EnvRank, ranks.EnvSize, ranks.EnvHelper, ranks.EnvDir, jobkey.EnvKey, jobkey.EnvKeyFD, grant.Env, jobgroups.Env, mpilib.EnvReport,
	ranks.EnvReplica, ranks.EnvReplicas, ranks.EnvReplicaTable, ranks.EnvSendDeterministic}

// environmentOf returns the part of an environment that processes get: what is requested, and what
// tunes the library.
func environmentOf(environ, asked, more []string) ([]string, error) {
	env := slices.Clone(more)
	for _, v := range environ {
		name, _, _ := strings.Cut(v, "=")
		if strings.HasPrefix(name, "ISTHMUS_") && !slices.Contains(placeVariables, name) {
			env = append(env, v)
		}
	}
	for _, word := range asked {
		name, _, given := strings.Cut(word, "=")
		if name == "" {
			return nil, fmt.Errorf("%q: want NAME or NAME=VALUE", word)
		}
		if given {
			env = append(env, word)
			continue
		}
		i := slices.IndexFunc(environ, func(v string) bool { return strings.HasPrefix(v, name+"=") })
		if i < 0 {
			return nil, fmt.Errorf("%s is not set here; give %s=VALUE", name, name)
		}
		env = append(env, environ[i])
	}
	return env, nil
}

// limitsOf parses limits: NAME=NUMBER, or NAME=unlimited.
func limitsOf(words []string) ([]*gatepb.Limit, error) {
	var all []*gatepb.Limit
	for _, word := range words {
		name, value, _ := strings.Cut(word, "=")
		l := &gatepb.Limit{Name: name, Value: ^uint64(0)}
		known := []string{"as", "core", "cpu", "data", "fsize", "memlock", "nofile", "nproc", "stack"}
		var err error
		if value != "unlimited" {
			l.Value, err = strconv.ParseUint(value, 10, 64)
		}
		if err != nil || !slices.Contains(known, name) {
			return nil, fmt.Errorf("%q: want NAME=NUMBER with one of the names %s", word, strings.Join(known, ", "))
		}
		all = append(all, l)
	}
	return all, nil
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
	if err != nil {
		return err
	}
	if program != nil {
		files = slices.DeleteFunc(files, func(f submit.File) bool { return f.Name == program.Name })
		files = append(files, *program)
	}
	j.Files, j.Argv = files, append([]string{name}, j.Argv[1:]...)
	return nil
}

// standardInput returns what rank 0 reads; nil if the kernel would stop this process for reading
// it, because it is in the background of its terminal.
func standardInput() io.Reader {
	foreground, err := unix.IoctlGetInt(int(os.Stdin.Fd()), unix.TIOCGPGRP)
	if err == nil && foreground != unix.Getpgrp() {
		return nil
	}
	return os.Stdin
}

// endSignals returns the signals that are to end a job, except those that this process was started
// to ignore. The third one ends this process immediately.
func endSignals() (signals <-chan os.Signal, stop func()) {
	raw, out, over := make(chan os.Signal, 4), make(chan os.Signal, 2), make(chan struct{})
	broken := make(chan os.Signal, 1) // if our output has no reader, the job is ended
	signal.Notify(broken, syscall.SIGPIPE)
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(s) {
			signal.Notify(raw, s)
		}
	}
	ended := make(chan struct{})
	go func() { // ends by stop
		defer close(ended)
		for {
			select {
			case s := <-raw:
				select {
				case out <- s:
				default:
					os.Exit(128 + int(s.(syscall.Signal)))
				}
			case <-over:
				return
			}
		}
	}()
	return out, func() {
		signal.Stop(raw)
		signal.Stop(broken)
		close(over)
		<-ended
	}
}

// narrator decides which steps are reported in a line.
type narrator struct {
	verbose bool
	last    string // the last reported step
	text    string
	when    time.Time
}

// How often steps that take long are reported.
const (
	tellWaiting = 5 * time.Second
	tellStaging = 2 * time.Second
)

// line returns the line to print for a step now; empty: none.
func (n *narrator) line(p submit.Progress, now time.Time) string {
	every := time.Duration(0)
	switch p.Step {
	case "broken", "back", "died", "diverged":
	case "waiting":
		every = tellWaiting
	case "staging", "measuring":
		if every = tellStaging; n.last != p.Step {
			if n.last, n.when = p.Step, now; !n.verbose { // short ones are not reported
				return ""
			}
		}
		if n.verbose && p.Have == p.Need {
			every = 0
		}
	case "booking":
		if every = tellStaging; !n.verbose {
			return ""
		}
	default:
		if !n.verbose {
			return ""
		}
	}
	text := p.String()
	if text == n.text || n.last == p.Step && now.Sub(n.when) < every {
		return ""
	}
	n.last, n.text, n.when = p.Step, text, now
	return text
}
