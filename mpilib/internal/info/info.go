// Package info has the lists of keys with values by which programs give hints. It knows none of the keys.
package info

import (
	"fmt"
	"slices"
	"sync"

	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
)

// A List is a list of keys with values, in the order in which the keys were
// first set (MPI-4.1, chapter 10). A nil List is empty (MPI_INFO_NULL). Safe
// for concurrent use.
type List struct {
	mu    sync.Mutex
	pairs []pair
}

type pair struct{ key, value string }

// Set sets the value of key (MPI_Info_set). Keys are not empty and are case-sensitive.
func (i *List) Set(key, value string) error {
	if key == "" {
		return fmt.Errorf("mpilib: Info.Set: %w: the key is empty", mpi.ErrArg)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if at := i.index(key); at >= 0 {
		i.pairs[at].value = value
		return nil
	}
	i.pairs = append(i.pairs, pair{key, value})
	return nil
}

// Get returns the value of key and whether it is set (MPI_Info_get_string).
func (i *List) Get(key string) (value string, ok bool) {
	if i == nil {
		return "", false
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if at := i.index(key); at >= 0 {
		return i.pairs[at].value, true
	}
	return "", false
}

// Delete removes key and reports whether it was set (MPI_Info_delete).
func (i *List) Delete(key string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	at := i.index(key)
	if at < 0 {
		return false
	}
	i.pairs = slices.Delete(i.pairs, at, at+1)
	return true
}

// Keys returns the keys in their order (MPI_Info_get_nkeys, MPI_Info_get_nthkey). The caller owns
// the slice.
func (i *List) Keys() []string {
	if i == nil {
		return nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	keys := make([]string, len(i.pairs))
	for n, p := range i.pairs {
		keys[n] = p.key
	}
	return keys
}

// Dup returns a copy with the same order (MPI_Info_dup).
func (i *List) Dup() *List {
	if i == nil {
		return new(List)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	return &List{pairs: slices.Clone(i.pairs)}
}

func (i *List) index(key string) int {
	return slices.IndexFunc(i.pairs, func(p pair) bool { return p.key == key })
}
