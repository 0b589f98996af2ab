//go:build !linux

package replicas

import (
	"context"

	"github.com/isthmus-grid/isthmus/bench"
	"github.com/isthmus-grid/isthmus/lab"
)

// Run needs network namespaces.
func Run(context.Context, Options) error { return lab.ErrNotLinux }

// Measure needs network namespaces.
func Measure(context.Context, Options, *bench.Report) error { return lab.ErrNotLinux }
