package probe

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/ipc/local"
)

// A rank that no other dials stops waiting when its context ends, every time.
func TestAcceptEndsWithItsContext(t *testing.T) {
	r := &Rank{client: local.NewClient(local.ClientConfig{Socket: filepath.Join(t.TempDir(), "nobody.sock")})}
	defer r.client.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 200 {
		done := make(chan error, 1)
		go func() {
			_, err := r.Accept(ctx)
			done <- err
		}()
		select {
		case err := <-done:
			if !errors.Is(err, context.Canceled) {
				t.Fatalf("got %v", err)
			}
		case <-time.After(30 * time.Second):
			t.Fatal("still waits")
		}
	}
}
