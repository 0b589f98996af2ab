//go:build !linux

package coll

import (
	"context"
	"io"

	"github.com/isthmus-grid/isthmus/bench"
	"github.com/isthmus-grid/isthmus/lab"
)

// Run needs network namespaces.
func Run(context.Context, io.Writer, Options) error { return lab.ErrNotLinux }

// Measure needs network namespaces.
func Measure(context.Context, Options, *bench.Report) error { return lab.ErrNotLinux }

// Part is for Run only.
func Part(context.Context, io.Reader, io.Writer) error { return lab.ErrNotLinux }
