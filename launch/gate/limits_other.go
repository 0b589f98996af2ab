//go:build !linux

package gate

import (
	"context"

	"github.com/isthmus-grid/isthmus/internal/ranks"
)

var resources map[string]int

// startLimited starts a process; there are neither limits nor control groups here.
func startLimited(ctx context.Context, s ranks.Spec, _ []limit, _ *cgroup) (*ranks.Process, error) {
	return ranks.Start(ctx, s)
}
