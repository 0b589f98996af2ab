package coll

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	_ "embed"

	"github.com/isthmus-grid/isthmus/bench/peermpi"
	"github.com/isthmus-grid/isthmus/bench/runner"
	"github.com/isthmus-grid/isthmus/lab"
)

//go:embed c/coll.c
var cSource []byte

// nodeNetwork holds the addresses of all hosts in sites (package lab).
const nodeNetwork = "10.0.0.0/8"

// nodeInterface is a host's only interface.
const nodeInterface = "eth0"

// A peer is an implementation of another MPI.
type peer struct {
	name string
	mpi  peermpi.MPI
	args func(p *peer, s *scenario) []string // of the launcher, for all ranks

	*peermpi.Program
	hosts map[string]peermpi.Host // by node
}

var peers = []peer{
	{name: nameTuned, mpi: peermpi.OpenMPI, args: func(p *peer, s *scenario) []string { return openMPIArgs(p, s, "--mca", "coll", "^han") }},
	{name: nameHAN, mpi: peermpi.OpenMPI, args: func(p *peer, s *scenario) []string { return openMPIArgs(p, s, "--mca", "coll_han_priority", "100") }},
	{name: nameMPICH, mpi: peermpi.MPICH, args: mpichArgs},
}

// crowded reports whether ranks outnumber processors, so that implementations that poll must
// be configured to yield.
func (s *scenario) crowded() bool { return s.sites*s.ranks > runtime.NumCPU() }

func openMPIArgs(p *peer, s *scenario, more ...string) []string {
	return append(p.OpenMPIArgs(nodeNetwork, s.crowded()), more...)
}

func mpichArgs(p *peer, s *scenario) []string {
	args := []string{"-launcher", "ssh", "-launcher-exec", p.Agent, "-iface", nodeInterface, "-genv", "UCX_TLS", "tcp,self"}
	if s.crowded() {
		args = append(args, "-genv", "LD_PRELOAD", p.Preload)
	}
	return args
}

// installPeers compiles the program for the requested implementations, to run in a lab. It
// reports those that are not installed and skips them.
func (r *run) installPeers(ctx context.Context, hosts map[string]peermpi.Host) (all []*peer, err error) {
	programs := map[string]*peermpi.Program{}
	for _, p := range peers {
		if !slices.Contains(r.Peers, p.name) {
			continue
		}
		if programs[p.mpi.Name] == nil {
			folder, err := os.MkdirTemp(r.folder, p.mpi.Name+"-")
			if err != nil {
				return nil, err
			}
			programs[p.mpi.Name], err = peermpi.Install(ctx, p.mpi, folder, cSource, slices.Collect(maps.Values(hosts)))
			if errors.Is(err, peermpi.ErrNotInstalled) {
				fmt.Fprintf(r.Err, "bench coll: %v: measured without it\n", err)
				r.Peers = slices.DeleteFunc(slices.Clone(r.Peers), func(n string) bool { return strings.HasPrefix(n, p.mpi.Name) })
				continue
			}
			if err != nil {
				return nil, err
			}
		}
		p.Program, p.hosts = programs[p.mpi.Name], hosts
		all = append(all, &p)
	}
	return all, nil
}

// start starts the peer's ranks of a scenario.
func (p *peer) start(ctx context.Context, l *lab.Lab, s *scenario) (*runner.Process, error) {
	places := s.places()
	args := append(append(p.LaunchAt(p.hosts[places[0]]), p.args(p, s)...), p.placing(s)...)
	cmd := l.Host(places[0]).Command(ctx, args[0], args[1:]...)
	return runner.Attend(cmd.Cmd, cmd.Start, cmd.Wait)
}

// placing returns the launcher's arguments for the hosts of ranks. Open MPI takes a program for
// each run of ranks on one host, and so any order; MPICH takes a list of hosts with the number
// of consecutive ranks on each, which it repeats.
func (p *peer) placing(s *scenario) (args []string) {
	places := s.places()
	var hosts []string
	for first := 0; first < len(places); {
		last := first
		for last+1 < len(places) && places[last+1] == places[first] {
			last++
		}
		n := strconv.Itoa(last + 1 - first)
		host := p.hosts[places[first]].Addr + ":" + n
		hosts = append(hosts, host)
		if p.mpi == peermpi.OpenMPI {
			args = append(args, "-np", n, "--host", host, p.Path, ":")
		}
		first = last + 1
	}
	if p.mpi == peermpi.OpenMPI {
		return args[:len(args)-1]
	}
	return []string{"-np", strconv.Itoa(len(places)), "-hosts", strings.Join(hosts, ","), p.Path}
}

// machines returns the host names that a scenario's ranks should report.
func (p *peer) machines(s *scenario) []string {
	var all []string
	for _, place := range s.places() {
		all = append(all, p.hosts[place].Name)
	}
	return all
}
