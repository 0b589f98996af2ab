package store

import (
	"context"
	"fmt"
	"sort"
	"strings"
	"sync"
)

// Memory is a Store in its process's memory: for unit tests, and as the reference for the other
// implementations.
type Memory struct {
	*Health
	watchers

	mu      sync.Mutex
	records map[string]Record
	version int64
	fault   error // the error of every call
}

// NewMemory returns an empty store.
func NewMemory() *Memory {
	return &Memory{Health: NewHealth("memory", "memory"), records: map[string]Record{}}
}

// Fail makes every further call fail with an ErrUnavailable, or succeed again if err is nil.
func (m *Memory) Fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fault = nil; err != nil {
		m.fault = fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
}

// Get implements Store.
func (m *Memory) Get(_ context.Context, key string) (Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fault != nil {
		return Record{}, m.Note(m.fault)
	}
	r, ok := m.records[key]
	if !ok {
		r.Key = key
	}
	return r, nil
}

// List implements Store.
func (m *Memory) List(_ context.Context, prefix, after string, max int) (all []Record, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fault != nil {
		return nil, m.Note(m.fault)
	}
	for key, r := range m.records {
		if strings.HasPrefix(key, prefix) && key >= FirstKey(prefix, after) {
			all = append(all, r)
		}
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Key < all[j].Key })
	return all[:min(len(all), max)], nil
}

// Commit implements Store.
func (m *Memory) Commit(_ context.Context, tx Tx) error {
	if err := tx.Check(); err != nil {
		return err
	}
	m.watchers.mu.Lock()
	defer m.watchers.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fault != nil {
		return m.Note(m.fault)
	}
	for _, want := range tx.If {
		if m.records[want.Key].Version != want.Version {
			return ErrConflict
		}
	}
	var changes []Change
	for _, r := range tx.Put {
		m.version++
		r.Version = m.version
		r.Value = append([]byte(nil), r.Value...)
		m.records[r.Key] = r
		changes = append(changes, Change{Record: r})
	}
	for _, key := range tx.Delete {
		delete(m.records, key)
		changes = append(changes, Change{Record: Record{Key: key}, Deleted: true})
	}
	m.notify(changes)
	return m.Note(nil)
}

// Watch implements Store.
func (m *Memory) Watch(ctx context.Context, prefix string, f func([]Change, bool)) {
	m.watch(ctx, prefix, f, m)
}

// Close implements Store.
func (m *Memory) Close() error { return nil }
