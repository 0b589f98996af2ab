//go:build !linux

package relay

import (
	"context"
	"io"

	"github.com/isthmus-grid/isthmus/lab"
)

// Run needs network namespaces.
func Run(context.Context, io.Writer, Options) error { return lab.ErrNotLinux }
