//go:build !linux

package stripe

import (
	"context"

	"github.com/isthmus-grid/isthmus/lab"
)

// Run needs network namespaces.
func Run(context.Context, Options) error { return lab.ErrNotLinux }
