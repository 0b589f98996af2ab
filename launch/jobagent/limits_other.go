//go:build !linux

package jobagent

import (
	"context"

	"github.com/isthmus-grid/isthmus/internal/job/ranks"
)

var resources map[string]int

// startLimited starts a process; limits are unsupported here.
func startLimited(ctx context.Context, s ranks.Spec, _ []limit) (*ranks.Process, error) {
	return ranks.Start(ctx, s)
}
