//go:build !linux

package apps

import (
	"context"
	"errors"

	"github.com/isthmus-grid/isthmus/examples/multisplit/split"
	"github.com/isthmus-grid/isthmus/lab/grid"
)

// petsc needs network namespaces.
type petsc struct{}

var errNoNamespaces = errors.New("PETSc is measured on Linux only")

func newPETSc(context.Context, *grid.Grid, split.System) (*petsc, error) { return nil, errNoNamespaces }

func (p *petsc) close() error { return nil }

func (p *petsc) solve(context.Context, *grid.Grid, []string, AIAC, string) ([]petscRun, error) {
	return nil, errNoNamespaces
}
