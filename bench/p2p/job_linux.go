package p2p

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/bench/peermpi"
	"github.com/isthmus-grid/isthmus/bench/runner"
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

// ours are ranks that use mpilib.
type ours struct {
	self   []string
	folder string // for the sockets of ranks at one host
}

func (o *ours) name() string { return nameOurs }

func (o *ours) start(ctx context.Context, s *scenario, w *runner.Wire) (all []*runner.Process, err error) {
	key, err := jobkey.New("bench")
	if err != nil {
		return nil, err
	}
	hosts := []*star.Space{w.Left}
	role := "environment"
	env := []string{fmt.Sprintf("%s=%d", mpilib.EnvSize, s.ranks), mpilib.EnvJobKey + "=" + key.String()}
	if s.apart {
		hosts = append(hosts, w.Right)
		role = fmt.Sprintf("tcp %v %v", runner.LeftAddr, runner.RightAddr)
	} else {
		env = append(env, mpilib.EnvDir+"="+filepath.Join(o.folder, s.name))
	}
	for number := range s.ranks {
		cpu := 1
		if !s.oneCPU {
			cpu += number
		}
		p, err := runner.Start(ctx, hosts[number%len(hosts)], runner.Command{
			Args: append(o.self[:len(o.self):len(o.self)], role),
			Env:  append(env[:len(env):len(env)], fmt.Sprintf("%s=%d", mpilib.EnvRank, number)),
			CPU:  cpu, Apart: s.apart,
		})
		if err != nil {
			return all, err
		}
		all = append(all, p)
	}
	return all, nil
}

// A foreign implementation is an MPI that is installed.
type foreign struct {
	*peermpi.Program // c/p2p.c
	hosts            []peermpi.Host
	args             func(f *foreign, s *scenario) []string
}

func (f *foreign) name() string { return f.MPI.Name }

func (f *foreign) start(ctx context.Context, s *scenario, w *runner.Wire) ([]*runner.Process, error) {
	args := append(f.LaunchAt(f.hosts[0]), "-np", strconv.Itoa(s.ranks))
	args = append(append(args, f.args(f, s)...), f.Path)
	c := runner.Command{Args: args}
	if s.oneCPU {
		c.CPU = 1
	} // else each rank binds itself
	p, err := runner.Start(ctx, w.Left, c)
	if err != nil {
		return nil, err
	}
	return []*runner.Process{p}, nil
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

// orderBound is the timeout of an order: many times what the slowest takes.
const orderBound = time.Minute

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
