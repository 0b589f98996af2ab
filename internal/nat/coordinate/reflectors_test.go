package coordinate

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
)

// TestReflectorCache: a failure is returned to its caller and not cached, one answer serves all, and
// a caller that gives up does not wait for another's question.
func TestReflectorCache(t *testing.T) {
	c := NewReflectorCache()
	gone := errors.New("the broker is away")
	if _, err := c.Get(t.Context(), func(context.Context) (*controlpb.ReflectorsResponse, error) { return nil, gone }); !errors.Is(err, gone) {
		t.Errorf("%v, want %v", err, gone)
	}
	asked, answer := make(chan struct{}), make(chan struct{})
	ask := func(context.Context) (*controlpb.ReflectorsResponse, error) {
		close(asked) // a second time would panic
		<-answer
		return &controlpb.ReflectorsResponse{Tcp: []string{"192.0.2.1:443"}}, nil
	}
	var callers sync.WaitGroup
	for range 5 {
		callers.Go(func() {
			if b, err := c.Get(t.Context(), ask); err != nil || len(b.TCP) != 1 {
				t.Errorf("%v, %v", b, err)
			}
		})
	}
	select {
	case <-asked:
	case <-time.After(30 * time.Second):
		t.Fatal("nobody is asked")
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	cancel(enough)
	if _, err := c.Get(ctx, ask); !errors.Is(err, enough) {
		t.Errorf("a caller that gave up: %v", err)
	}
	close(answer)
	callers.Wait()
	c.asked = time.Now().Add(-reflectorCacheLife)
	bad := func(context.Context) (*controlpb.ReflectorsResponse, error) {
		return &controlpb.ReflectorsResponse{Tcp: []string{"nowhere"}}, nil
	}
	if _, err := c.Get(t.Context(), bad); err == nil {
		t.Error("an answer that is no address was taken")
	}
}
