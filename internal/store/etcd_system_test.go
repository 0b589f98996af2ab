//go:build system

package store_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/store"
	_ "github.com/isthmus-grid/isthmus/internal/store/etcd" // OpenEtcd
	"github.com/isthmus-grid/isthmus/internal/store/storetest"
)

func init() {
	eachEtcd = func(t *testing.T) func() store.Store {
		at := storetest.Start(t, 1).Address(t.Name())
		return func() store.Store { return openEtcd(t, at) }
	}
}

func openEtcd(t *testing.T, at store.Address) store.Store {
	t.Helper()
	s, err := store.OpenEtcd(at, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// One member of three dies, and its cluster and clients continue; without a majority calls
// fail, and succeed again with one.
func TestEtcdMembersDie(t *testing.T) {
	c := storetest.Start(t, 3)
	s := openEtcd(t, c.Address("grid"))
	ctx := t.Context()
	put := func(key string) error {
		return s.Commit(ctx, store.Tx{If: []store.Record{{Key: key}}, Put: []store.Record{{Key: key}}})
	}
	// eventually retries as the callers of a store do, for a bounded time.
	eventually := func(what, key string) {
		t.Helper()
		end := time.Now().Add(time.Minute)
		for {
			err := put(key)
			if err == nil || errors.Is(err, store.ErrConflict) {
				return
			}
			if !errors.Is(err, store.ErrUnavailable) || time.Now().After(end) {
				t.Fatalf("%s: %v", what, err)
			}
		}
	}
	eventually("three members", "a")
	c.Members[0].Kill()
	eventually("two members", "b")
	c.Members[1].Kill()
	err := put("c")
	if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "is a majority of its members up") {
		t.Errorf("one member: %v", err)
	}
	if s.Status().Error == "" {
		t.Error("the status says nothing")
	}
	c.Members[1].Start()
	eventually("two members again", "d")
	if r, err := s.Get(ctx, "b"); err != nil || r.Version == 0 {
		t.Errorf("what was written: %+v, %v", r, err)
	}
	if got := s.Status().Error; got != "" {
		t.Errorf("the status goes on saying %s", got)
	}
}

// A caller that cancels, as a peer whose call ends may, does not mark the store as unavailable:
// otherwise no broker would renew a lease.
func TestEtcdIsNotWaitedFor(t *testing.T) {
	s := openEtcd(t, store.Address{Hosts: []string{"127.0.0.1:1"}, Prefix: "grid"})
	hasty, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := s.Get(hasty, "key"); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("hasty: %v", err)
	}
	if err := s.Commit(hasty, store.Tx{}); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("hasty: %v", err)
	}
	if status := s.Status(); status.Error != "" {
		t.Errorf("after who did not wait: %+v", status)
	}
	if _, err := s.Get(t.Context(), "key"); !errors.Is(err, store.ErrUnavailable) || s.Status().Error == "" {
		t.Errorf("patient: %v, %+v", err, s.Status())
	}
}
