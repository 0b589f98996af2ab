package peermpi

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/isthmus-grid/isthmus/bench/runner"
	"github.com/isthmus-grid/isthmus/lab"
)

//go:embed c/yield.c
var yieldSource []byte

// An MPI describes how one of the two is installed and started.
type MPI struct {
	Name, Title      string
	Packages         string // of Debian
	Compiler, Launch string
}

// The two.
var (
	OpenMPI = MPI{"openmpi", "Open MPI", "openmpi-bin libopenmpi-dev", "mpicc.openmpi", "mpirun.openmpi"}
	MPICH   = MPI{"mpich", "MPICH", "mpich libmpich-dev", "mpicc.mpich", "mpiexec.hydra"}
)

// ErrNotInstalled says that an MPI is not installed, which is not a failure.
var ErrNotInstalled = errors.New("not installed")

// A Program is a program compiled with an MPI. All but MPI are paths.
type Program struct {
	MPI     MPI
	Launch  string // the launcher
	Path    string // the program
	Preload string // a library that makes MPICH yield the processor after polling in vain
	Agent   string // runs a command at the given host, in place of ssh
	host    string // runs a command as on a machine of its own
}

// A Host is where ranks can be.
type Host struct {
	Addr      string // by which launchers know it
	Name      string // of the machine, as its processes see it; at most a few letters, digits and dashes
	Namespace string // path of its network namespace
}

// LabHosts returns the nodes of a lab by their names. They are valid until close is called.
func LabHosts(l *lab.Lab) (hosts map[string]Host, close func() error, err error) {
	var namespaces []*os.File // they keep the paths
	close = func() (err error) {
		for _, ns := range namespaces {
			err = errors.Join(err, ns.Close())
		}
		return err
	}
	hosts = map[string]Host{}
	for _, h := range l.Hosts() {
		if h.Role() != "node" {
			continue
		}
		var ns *os.File
		if err := h.Do(func() (err error) { ns, err = os.Open("/proc/thread-self/ns/net"); return err }); err != nil {
			return nil, nil, errors.Join(err, close())
		}
		namespaces = append(namespaces, ns)
		hosts[h.Name()] = Host{
			Addr: h.Addr().String(), Name: strings.ReplaceAll(h.Name(), "/", "-"), Namespace: fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), ns.Fd()),
		}
	}
	return hosts, close, nil
}

// Install compiles source, in folder, as a program whose ranks can be at hosts. The flags are further arguments
// of the compiler.
func Install(ctx context.Context, m MPI, folder string, source []byte, hosts []Host, flags ...string) (p *Program, err error) {
	p = &Program{MPI: m, host: filepath.Join(folder, "host"), Agent: filepath.Join(folder, "agent")}
	if p.Launch, err = exec.LookPath(m.Launch); err != nil {
		return nil, fmt.Errorf("%s is %w: %w; Debian's packages are %s", m.Title, ErrNotInstalled, err, m.Packages)
	}
	p.Path, err = runner.Compile(ctx, m.Compiler, folder, m.Name, source, flags...)
	if errors.Is(err, runner.ErrNoCompiler) {
		return nil, fmt.Errorf("%s is %w to compile with: %w; Debian's packages are %s", m.Title, ErrNotInstalled, err, m.Packages)
	}
	if err != nil {
		return nil, err
	}
	if p.Preload, err = runner.Compile(ctx, "cc", folder, "yield.so", yieldSource, "-shared", "-fPIC"); err != nil {
		return nil, err
	}
	return p, p.writeScripts(hosts)
}

// LaunchAt returns the command line that runs the launcher at a host, to be started in its network
// namespace. The launcher's arguments and the program's path follow it.
func (p *Program) LaunchAt(h Host) []string { return []string{p.host, h.Name, p.Launch} }

// OpenMPIArgs returns arguments of Open MPI's launcher, for ranks that talk over TCP and the given network, or shared
// memory on one host. Where they are crowded, more than the processors, they yield while they wait.
func (p *Program) OpenMPIArgs(network string, crowded bool) []string {
	args := []string{
		"--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--mca", "pml", "ob1", "--mca", "btl", "tcp,vader,self",
		"--mca", "btl_tcp_if_include", network, "--mca", "oob_tcp_if_include", network, "--mca", "plm_rsh_agent", p.Agent,
	}
	if crowded {
		args = append(args, "--mca", "mpi_yield_when_idle", "1")
	}
	return args
}

// hostText is a script that runs a command as on a separate machine, with the network of the host
// where it is called: its own host name, no memory shared with others, and a /sys that shows this
// network's interfaces, which MPICH reads.
const hostText = `#!/bin/sh
exec unshare --uts --ipc --mount sh -c '
	hostname "$0" && mount -t sysfs sysfs /sys && exec "$@"' "$@"
`

// agentText is the program that launchers use in place of ssh, which runs a command at a host.
const agentText = `#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done # ssh's options
case $1 in
%s*) echo "no host $1" >&2; exit 255 ;;
esac
shift
exec nsenter --net=$ns %s $name sh -c "$*"
`

// writeScripts writes both.
func (p *Program) writeScripts(hosts []Host) error {
	var cases strings.Builder
	for _, h := range hosts {
		fmt.Fprintf(&cases, "%s) ns=%s name=%s ;;\n", h.Addr, h.Namespace, h.Name)
	}
	agent := fmt.Appendf(nil, agentText, cases.String(), p.host)
	return errors.Join(os.WriteFile(p.host, []byte(hostText), 0o700), os.WriteFile(p.Agent, agent, 0o700))
}
