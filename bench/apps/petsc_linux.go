package apps

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/isthmus-grid/isthmus/bench/peermpi"
	"github.com/isthmus-grid/isthmus/examples/multisplit/split"
	"github.com/isthmus-grid/isthmus/lab/grid"
)

//go:embed c/petsc.c
var petscSource []byte

// petscPackages are those of Debian, besides Open MPI's.
const petscPackages = "petsc-dev pkg-config"

// petsc is a program that uses PETSc, installed for the nodes of a lab.
type petsc struct {
	*peermpi.Program
	hosts  map[string]peermpi.Host // by node
	system string                  // file of it
	folder string
	done   func() error // with the hosts
}

// newPETSc compiles the program, and writes the system that it is to solve.
func newPETSc(ctx context.Context, g *grid.Grid, s split.System) (_ *petsc, err error) {
	flags, err := exec.CommandContext(ctx, "pkg-config", "--cflags", "--libs", "PETSc").Output()
	if err != nil {
		return nil, fmt.Errorf("PETSc is %w: pkg-config PETSc: %w; Debian's packages are %s %s", peermpi.ErrNotInstalled, err, petscPackages, peermpi.OpenMPI.Packages)
	}
	p := new(petsc)
	if p.folder, err = os.MkdirTemp("", "isthmus-petsc-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	p.system = filepath.Join(p.folder, "system")
	f, err := os.Create(p.system)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(split.WritePETSc(f, s), f.Close()); err != nil {
		return nil, err
	}
	if p.hosts, p.done, err = peermpi.LabHosts(g.Lab); err != nil {
		return nil, err
	}
	p.Program, err = peermpi.Install(ctx, peermpi.OpenMPI, p.folder, petscSource, slices.Collect(maps.Values(p.hosts)),
		append([]string{"-Wl,--no-as-needed"}, strings.Fields(string(flags))...)...) // the libraries come before the source
	return p, err
}

func (p *petsc) close() error {
	if p == nil {
		return nil
	}
	err := os.RemoveAll(p.folder)
	if p.done != nil {
		err = errors.Join(err, p.done())
	}
	return err
}

// nodeNetwork holds the addresses of all nodes.
const nodeNetwork = "10.0.0.0/8"

// solve solves the system on the given nodes, one for each rank, by a method of PETSc with a block of the matrix for
// each rank as the preconditioner. It returns the runs.
func (p *petsc) solve(ctx context.Context, g *grid.Grid, nodes []string, s AIAC, method string) (runs []petscRun, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("PETSc's %s on %d ranks was not done after %v", method, len(nodes), patience))
	defer cancel()
	args := append(p.LaunchAt(p.hosts[nodes[0]]), p.OpenMPIArgs(nodeNetwork, len(nodes) > runtime.NumCPU())...)
	for first := 0; first < len(nodes); {
		n := 1
		for first+n < len(nodes) && nodes[first+n] == nodes[first] {
			n++
		}
		args = append(args, "-np", strconv.Itoa(n), "--host", p.hosts[nodes[first]].Addr+":"+strconv.Itoa(n), p.Path, "-system", p.system,
			"-ksp_type", method, "-pc_type", "bjacobi", "-tolerance", fmt.Sprint(s.Tolerance), "-repeat", strconv.Itoa(s.Repeat))
		if first += n; first < len(nodes) {
			args = append(args, ":")
		}
	}
	var out, problems bytes.Buffer
	cmd := g.Lab.Host(nodes[0]).Command(ctx, args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("PETSc's %s: %w: %s", method, errors.Join(err, context.Cause(ctx)), problems.Bytes())
	}
	for d := json.NewDecoder(&out); d.More(); {
		var r petscRun
		if err := d.Decode(&r); err != nil {
			return nil, fmt.Errorf("PETSc's %s printed something other than a result: %w", method, err)
		}
		runs = append(runs, r)
	}
	return runs, nil
}
