package gateway

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/testkit"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// TestTraversalsTakeTurns: over the bound they wait, but no longer than permitted.
func TestTraversalsTakeTurns(t *testing.T) {
	m := newTraversals(Limits{Pending: 1, PendingPerNode: 1 << 10})
	var leave func()
	for range maxTraversals {
		var err error
		if leave, err = m.enter(t.Context(), "n1"); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	waited := make(chan error)
	go func() { _, err := m.enter(ctx, "n1"); waited <- err }()
	testkit.Until(t, "it waits", func() bool { return m.line.Stats().Used == 1 })
	if _, err := m.enter(ctx, "n1"); !errors.Is(err, overlay.ErrOverloaded) || !strings.Contains(err.Error(), "1 coordinated traversals that wait for their turn for all together is reached (limits.pending)") {
		t.Errorf("a full line: %v", err)
	}
	cancel(fmt.Errorf("%w after 1s", overlay.ErrTimeout))
	if err := testkit.Receive(t, "a turn", waited); wire.CodeOf(err) != wire.CodeOverloaded || !strings.Contains(err.Error(), "256 coordinated traversals are under way, and none ended in time: timed out after 1s") {
		t.Errorf("in vain: %v", err)
	}
	go func() { _, err := m.enter(t.Context(), "n1"); waited <- err }()
	leave()
	if err := testkit.Receive(t, "a turn", waited); err != nil || m.line.Stats().Used != 0 {
		t.Errorf("after one ended: %v", err)
	}
}
