package broker

import (
	"errors"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/store"
)

// A program without etcd's client, as this test is, refuses an etcd instead of doing without a store.
func TestStoreNeedsClient(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Store = "etcd://127.0.0.1:1/grid"
	if err := cfg.checkStore(); err != nil {
		t.Errorf("the settings are right: %v", err)
	}
	if _, err := newStore(cfg); !errors.Is(err, store.ErrNoClient) {
		t.Errorf("an etcd without a client: %v", err)
	}
}
