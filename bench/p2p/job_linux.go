package p2p

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/bench/peermpi"
	"github.com/isthmus-grid/isthmus/bench/runner"
	"github.com/isthmus-grid/isthmus/cabi/build"
	"github.com/isthmus-grid/isthmus/internal/job/cprogram"
	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/lab/wan/star"
	"github.com/isthmus-grid/isthmus/mpilib"
)

//go:embed c/p2p.c
var cSource []byte

// An implementation starts jobs.
type implementation interface {
	name() string

	// start starts the job of a scenario and returns its processes, first rank 0 or the process
	// that forwards orders to it, also with an error.
	start(ctx context.Context, s *scenario, w *runner.Wire) ([]*runner.Process, error)
}

// ours are ranks that use our library: mpilib, or that for C.
type ours struct {
	title   string
	argv    []string
	folder  string // for the sockets of ranks at one host
	helpers *runner.FakeHelpers
}

func (o *ours) name() string { return o.title }

func (o *ours) start(ctx context.Context, s *scenario, w *runner.Wire) (all []*runner.Process, err error) {
	if s.mode == modeSingleton {
		return startOne(ctx, w, runner.Command{Args: s.program(o.argv...)})
	}
	key, err := jobkey.New("bench")
	if err != nil {
		return nil, err
	}
	hosts := []*star.Space{w.Left}
	env := []string{fmt.Sprintf("%s=%d", mpilib.EnvSize, s.ranks), mpilib.EnvJobKey + "=" + key.String()}
	if s.apart {
		hosts = append(hosts, w.Right)
	} else {
		env = append(env, mpilib.EnvDir+"="+o.folder)
	}
	for number := range s.ranks {
		c := runner.Command{
			Args: s.program(o.argv...),
			Env:  append(env[:len(env):len(env)], fmt.Sprintf("%s=%d", mpilib.EnvRank, number)),
			CPU:  1, Apart: s.apart,
		}
		if s.apart {
			c.Env = append(c.Env, mpilib.EnvHelper+"="+o.helpers.Socket(number))
		}
		switch {
		case s.mode == modeThreads: // which bind themselves
			c.CPU = 0
		case !s.oneCPU:
			c.CPU += number
		}
		p, err := runner.Start(ctx, hosts[number%len(hosts)], c)
		if err != nil {
			return all, err
		}
		all = append(all, p)
	}
	return all, nil
}

// program returns the command line of a rank's program.
func (s *scenario) program(argv ...string) []string {
	if s.mode != "" {
		argv = append(slices.Clone(argv), s.mode)
	}
	return argv
}

// startOne starts a job of one process.
func startOne(ctx context.Context, w *runner.Wire, c runner.Command) ([]*runner.Process, error) {
	p, err := runner.Start(ctx, w.Left, c)
	if err != nil {
		return nil, err
	}
	return []*runner.Process{p}, nil
}

// compileC compiles the program in C with "isthmus cc", and the libraries that are installed or, within the module, made now.
func compileC(ctx context.Context, compiler []string, folder string) (path string, err error) {
	libraries, err := cprogram.Folder()
	if err != nil {
		libraries = filepath.Join(folder, "mpi")
		err = build.Libraries(ctx, libraries)
	}
	if err != nil {
		return "", fmt.Errorf("making the libraries for C programs: %w; run it within the module and with a C compiler, or %s", err, cprogram.Next)
	}
	arguments := append([]string{cprogram.Env + "=" + libraries}, compiler...)
	return runner.Compile(ctx, "env", folder, nameC, cSource, append(arguments, threadsFlag)...)
}

// threadsFlag is what compilers want for a program with threads.
const threadsFlag = "-pthread"

// A foreign implementation is an MPI that is installed.
type foreign struct {
	*peermpi.Program // c/p2p.c
	hosts            []peermpi.Host
	args             func(f *foreign, s *scenario) []string
}

func (f *foreign) name() string { return f.MPI.Name }

func (f *foreign) start(ctx context.Context, s *scenario, w *runner.Wire) ([]*runner.Process, error) {
	if s.mode == modeSingleton {
		return startOne(ctx, w, runner.Command{Args: s.program(f.Path)})
	}
	args := append(f.LaunchAt(f.hosts[0]), "-np", strconv.Itoa(s.ranks))
	args = append(args, f.args(f, s)...)
	c := runner.Command{Args: append(args, s.program(f.Path)...)}
	if s.oneCPU {
		c.CPU = 1
	} // else each rank binds itself
	return startOne(ctx, w, c)
}

// mpis are the other MPIs, and their arguments for a scenario.
var mpis = []struct {
	peermpi.MPI
	args func(f *foreign, s *scenario) []string
}{
	{peermpi.OpenMPI, openMPIArgs},
	{peermpi.MPICH, mpichArgs},
}

// oneEach is the launchers' list of hosts.
var oneEach = fmt.Sprintf("%v:1,%v:1", runner.LeftAddr, runner.RightAddr)

// openMPIArgs choose the transport of a scenario, and leave it to the ranks to bind themselves to
// processors: the launcher of each host would choose the same.
func openMPIArgs(f *foreign, s *scenario) []string {
	hosts := runner.Network.String()
	args := []string{"--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--mca", "pml", "ob1", "--mca", "oob_tcp_if_include", hosts}
	if s.oneCPU {
		args = append(args, "--mca", "mpi_yield_when_idle", "1")
	}
	if !s.apart {
		return append(args, "--mca", "btl", "vader,self")
	}
	return append(args, "--host", oneEach, "--mca", "plm_rsh_agent", f.Agent,
		"--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", hosts)
}

func mpichArgs(f *foreign, s *scenario) []string {
	var args []string
	if s.oneCPU {
		args = append(args, "-genv", "LD_PRELOAD", f.Preload)
	}
	if !s.apart {
		return args
	}
	return append(args, "-hosts", oneEach, "-launcher", "ssh", "-launcher-exec", f.Agent,
		"-iface", runner.WireName, "-genv", "UCX_TLS", "tcp,self")
}

// hostsOf returns the hosts of a wire.
func hostsOf(w *runner.Wire) (hosts []peermpi.Host, err error) {
	for _, at := range []struct {
		space *star.Space
		addr  netip.Addr
		name  string
	}{{w.Left, runner.LeftAddr, "isthmus-left"}, {w.Right, runner.RightAddr, "isthmus-right"}} {
		var thread string
		if err := at.space.Do(func() (err error) { thread, err = os.Readlink("/proc/thread-self"); return err }); err != nil {
			return nil, err
		}
		hosts = append(hosts, peermpi.Host{Addr: at.addr.String(), Name: at.name, Namespace: filepath.Join("/proc", thread, "ns/net")})
	}
	return hosts, nil
}

// joinBound is the timeout for a job's start.
const joinBound = 30 * time.Second

// orderBound is the timeout of an order: many times what the slowest takes. On a busy machine hops of threads are a thousand times
// as long as in the count that determined their number.
const orderBound = 5 * time.Minute

// A job is an implementation's ranks.
type job struct {
	all     []*runner.Process // the first takes orders
	version string
}

// newJob starts a job and waits until rank 0 takes orders.
func newJob(ctx context.Context, c implementation, s *scenario, w *runner.Wire) (_ *job, err error) {
	j := new(job)
	defer func() {
		if err != nil {
			err = errors.Join(err, j.stop())
		}
	}()
	if j.all, err = c.start(ctx, s, w); err != nil {
		return nil, err
	}
	var ranks int
	if err := j.all[0].Hear(joinBound, "ready", &ranks, &j.version); err != nil {
		return nil, err
	}
	if ranks != s.ranks {
		return nil, fmt.Errorf("%v: has %d ranks, not %d", j.all[0], ranks, s.ranks)
	}
	j.version = strings.Trim(j.version, "-")
	return j, nil
}

// do makes the job carry out an order and returns the answer.
func (j *job) do(order string) (ns, cpus float64, err error) {
	if err := j.all[0].Tell(order); err != nil {
		return 0, 0, err
	}
	err = j.all[0].Hear(orderBound, "ok", &ns, &cpus)
	return ns, cpus, err
}

// stop ends the job: rank 0 tells the others.
func (j *job) stop() (err error) {
	for _, p := range j.all {
		err = errors.Join(err, p.Stop())
	}
	return err
}
