//go:build !linux

package stripebench

import (
	"context"

	"github.com/isthmus-grid/isthmus/internal/lab"
)

// Run needs network namespaces.
func Run(context.Context, Options) error { return lab.ErrNotLinux }
