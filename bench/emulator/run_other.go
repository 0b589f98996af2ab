//go:build !linux

package emulator

import (
	"context"
	"io"

	"github.com/isthmus-grid/isthmus/lab/wan"
)

// Run returns wan.ErrUnsupported.
func Run(context.Context, io.Writer, bool) error { return wan.ErrUnsupported }
