package p2pbench

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/cmd/internal/twohosts"
	"github.com/isthmus-grid/isthmus/internal/jobkey"
	"github.com/isthmus-grid/isthmus/internal/lab/wan/star"
	"github.com/isthmus-grid/isthmus/mpilib"
)

var (
	//go:embed c/p2p.c
	cSource []byte
	//go:embed c/yield.c
	yieldSource []byte
)

// A contestant starts jobs.
type contestant interface {
	name() string

	// start starts the job of a scene and returns it, rank 0 or what passes
	// orders on to it first, also with an error.
	start(ctx context.Context, s *scene, w *twohosts.Wire) ([]*twohosts.Process, error)
}

// ours are ranks that use mpilib.
type ours struct {
	self   []string
	folder string // for the sockets of ranks at one host
}

func (o *ours) name() string { return nameOurs }

func (o *ours) start(ctx context.Context, s *scene, w *twohosts.Wire) (all []*twohosts.Process, err error) {
	key, err := jobkey.New("bench")
	if err != nil {
		return nil, err
	}
	hosts := []*star.Space{w.Left}
	role := "environment"
	env := []string{fmt.Sprintf("%s=%d", mpilib.EnvSize, s.ranks), mpilib.EnvJobKey + "=" + key.String()}
	if s.apart {
		hosts = append(hosts, w.Right)
		role = fmt.Sprintf("tcp %v %v", twohosts.LeftAddr, twohosts.RightAddr)
	} else {
		env = append(env, mpilib.EnvDir+"="+filepath.Join(o.folder, s.name))
	}
	for number := range s.ranks {
		p, err := twohosts.Start(ctx, hosts[number%len(hosts)], twohosts.Command{
			Args:   append(o.self[:len(o.self):len(o.self)], role),
			Env:    append(env[:len(env):len(env)], fmt.Sprintf("%s=%d", mpilib.EnvRank, number)),
			OneCPU: s.oneCPU, Apart: s.apart,
		})
		if err != nil {
			return all, err
		}
		all = append(all, p)
	}
	return all, nil
}

// A foreign contestant is an MPI that is installed. Its fields are paths.
type foreign struct {
	mpi     mpi
	launch  string // its launcher
	program string // c/p2p.c, compiled with it
	preload string // c/yield.c, compiled
	host    string // runs a command as on a machine of its own
	agent   string // likewise at the right host, in place of ssh
}

func (f *foreign) name() string { return f.mpi.name }

func (f *foreign) start(ctx context.Context, s *scene, w *twohosts.Wire) ([]*twohosts.Process, error) {
	args := append([]string{f.host, "left", f.launch, "-np", strconv.Itoa(s.ranks)}, f.mpi.args(f, s)...)
	p, err := twohosts.Start(ctx, w.Left, twohosts.Command{Args: append(args, f.program), OneCPU: s.oneCPU})
	if err != nil {
		return nil, err
	}
	return []*twohosts.Process{p}, nil
}

// An mpi is how an MPI is installed and started.
type mpi struct {
	name, title      string
	packages         string // of Debian
	compiler, launch string
	args             func(f *foreign, s *scene) []string
}

var mpis = []mpi{
	{nameOpenMPI, "Open MPI", "openmpi-bin libopenmpi-dev", "mpicc.openmpi", "mpirun.openmpi", openMPIArgs},
	{nameMPICH, "MPICH", "mpich libmpich-dev", "mpicc.mpich", "mpiexec.hydra", mpichArgs},
}

// oneEach is how launchers are told the hosts.
var oneEach = fmt.Sprintf("%v:1,%v:1", twohosts.LeftAddr, twohosts.RightAddr)

// openMPIArgs choose the transport that a scene is about, and let the ranks
// move between processors as ours do.
func openMPIArgs(f *foreign, s *scene) []string {
	hosts := twohosts.Network.String()
	args := []string{"--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--mca", "pml", "ob1", "--mca", "oob_tcp_if_include", hosts}
	if s.oneCPU {
		args = append(args, "--mca", "mpi_yield_when_idle", "1")
	}
	if !s.apart {
		return append(args, "--mca", "btl", "vader,self")
	}
	return append(args, "--host", oneEach, "--mca", "plm_rsh_agent", f.agent,
		"--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", hosts)
}

func mpichArgs(f *foreign, s *scene) []string {
	var args []string
	if s.oneCPU {
		args = append(args, "-genv", "LD_PRELOAD", f.preload)
	}
	if !s.apart {
		return args
	}
	return append(args, "-hosts", oneEach, "-launcher", "ssh", "-launcher-exec", f.agent,
		"-iface", twohosts.WireName, "-genv", "UCX_TLS", "tcp,self")
}

// errNotInstalled says that an MPI is not there, which is no failure.
var errNotInstalled = errors.New("not installed")

// install compiles the program for an MPI, in folder. The hosts are up.
func install(ctx context.Context, m mpi, folder string, w *twohosts.Wire) (_ *foreign, err error) {
	f := &foreign{mpi: m, host: filepath.Join(folder, "host"), agent: filepath.Join(folder, "agent")}
	if f.launch, err = exec.LookPath(m.launch); err != nil {
		return nil, fmt.Errorf("%s is %w: %w; Debian's packages are %s", m.title, errNotInstalled, err, m.packages)
	}
	f.program, err = twohosts.Compile(ctx, m.compiler, folder, m.name, cSource)
	if errors.Is(err, twohosts.ErrNoCompiler) {
		return nil, fmt.Errorf("%s is %w to compile with: %w; Debian's packages are %s", m.title, errNotInstalled, err, m.packages)
	}
	if err != nil {
		return nil, err
	}
	if f.preload, err = twohosts.Compile(ctx, "cc", folder, "yield.so", yieldSource, "-shared", "-fPIC"); err != nil {
		return nil, err
	}
	return f, f.writeScripts(w.Right)
}

// hostText is a script that runs a command as on a machine of its own, with the
// network of the host that it is called at: an own name, no memory shared with
// others, and a /sys that shows this network's interfaces, among which MPICH
// looks for some.
const hostText = `#!/bin/sh
exec unshare --uts --ipc --mount sh -c '
	hostname "isthmus-$0" && mount -t sysfs sysfs /sys && exec "$@"' "$@"
`

// agentText is the program that launchers take for ssh, which runs a command at
// the right host.
const agentText = `#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done # what ssh is told
shift # the host
exec nsenter --net=%s %s right sh -c "$*"
`

// writeScripts writes both.
func (f *foreign) writeScripts(right *star.Space) error {
	var thread string
	err := right.Do(func() (err error) { thread, err = os.Readlink("/proc/thread-self"); return err })
	if err != nil {
		return err
	}
	agent := fmt.Appendf(nil, agentText, filepath.Join("/proc", thread, "ns/net"), f.host)
	return errors.Join(os.WriteFile(f.host, []byte(hostText), 0o700), os.WriteFile(f.agent, agent, 0o700))
}

// joinBound is how long a job may take to start.
const joinBound = 30 * time.Second

// orderBound is how long an order may take: many times what the slowest does.
const orderBound = time.Minute

// A job is a contestant's ranks.
type job struct {
	all     []*twohosts.Process // the first takes orders
	version string
}

// newJob starts a job and waits until rank 0 takes orders.
func newJob(ctx context.Context, c contestant, s *scene, w *twohosts.Wire) (_ *job, err error) {
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

// do has the job carry out an order and returns the answer.
func (j *job) do(order string) (ns float64, err error) {
	if err := j.all[0].Tell(order); err != nil {
		return 0, err
	}
	return ns, j.all[0].Hear(orderBound, "ok", &ns)
}

// stop ends the job: rank 0 tells the others.
func (j *job) stop() (err error) {
	for _, p := range j.all {
		err = errors.Join(err, p.Stop())
	}
	return err
}
