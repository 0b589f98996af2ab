//go:build !linux

package scale

import (
	"context"
	"io"

	"github.com/isthmus-grid/isthmus/lab"
)

// Run needs Linux.
func Run(context.Context, Options) error { return lab.ErrNotLinux }

// Part needs Linux.
func Part(context.Context, string, io.Reader, io.Writer) error { return lab.ErrNotLinux }
