// Package sleep waits for a duration that a context can cut short. It keeps no state.
package sleep

import (
	"context"
	"time"
)

// For waits for d and returns nil, or waits until ctx ends and returns its cause.
func For(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
