//go:build !linux

package relay

import (
	"context"
	"io"
	"time"

	"github.com/isthmus-grid/isthmus/lab"
)

// Options say how to measure.
type Options struct {
	Self   []string
	Repeat int
	Stream time.Duration
	Trips  int
	JSON   bool
}

// Run needs network namespaces.
func Run(context.Context, io.Writer, Options) error { return lab.ErrNotLinux }
