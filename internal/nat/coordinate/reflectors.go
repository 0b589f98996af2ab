package coordinate

import (
	"context"
	"fmt"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
)

// reflectorCacheLife is how long the reflectors that the broker named are used.
const reflectorCacheLife = 30 * time.Second

// ReflectorCache caches the directory's answer about reflectors for half a minute, and asks once
// for all concurrent callers. It is safe for concurrent use.
type ReflectorCache struct {
	sem   chan struct{} // holds a value while a caller uses the fields below
	last  Reflectors
	asked time.Time
}

// NewReflectorCache returns an empty cache.
func NewReflectorCache() *ReflectorCache { return &ReflectorCache{sem: make(chan struct{}, 1)} }

// Get returns the cached answer, or that of ask; ask ends with ctx, and so does the wait for
// another caller's ask. A failure is not cached.
func (c *ReflectorCache) Get(ctx context.Context, ask func(context.Context) (*controlpb.ReflectorsResponse, error)) (Reflectors, error) {
	select {
	case c.sem <- struct{}{}:
	case <-ctx.Done():
		return Reflectors{}, fmt.Errorf("asking for reflectors: %w", context.Cause(ctx))
	}
	defer func() { <-c.sem }()
	if !c.asked.IsZero() && time.Since(c.asked) < reflectorCacheLife {
		return c.last, nil
	}
	m, err := ask(ctx)
	if err != nil {
		return Reflectors{}, fmt.Errorf("asking for reflectors: %w", control.FromStatus(err))
	}
	b, err := ReadReflectors(m)
	if err != nil {
		return Reflectors{}, err
	}
	c.last, c.asked = b, time.Now()
	return b, nil
}
