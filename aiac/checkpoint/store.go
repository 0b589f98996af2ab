package checkpoint

import (
	"fmt"
	"slices"
	"sync"

	"github.com/zeebo/xxh3"
)

// DefaultMaxBytes bounds the size of a state where nothing else is said.
const DefaultMaxBytes = 256 << 20

// A Store holds states of other tasks in memory: of each task the newest that is whole, and besides the one that is
// arriving. So it takes at most twice the size bound for each task that it holds. It outlives the Exchange that fills
// it: the next one, over another communicator of the same tasks, goes on with it. Safe for concurrent use.
type Store struct {
	maxBytes uint64

	mu   sync.Mutex
	held map[int]*held // by task
}

// held is what a Store has of one task.
type held struct {
	isWhole bool // whole and data are valid
	whole   identity
	data    []byte

	isArriving bool
	next       identity
	part       []byte // of next; if nothing arrives, memory for it
	hash       *xxh3.Hasher
}

// NewStore returns an empty Store for states of at most maxBytes; 0: DefaultMaxBytes. It panics if maxBytes is
// negative.
func NewStore(maxBytes int) *Store {
	if maxBytes < 0 {
		panic(fmt.Sprintf("checkpoint: a Store of %d bytes", maxBytes))
	}
	if maxBytes == 0 {
		maxBytes = DefaultMaxBytes
	}
	return &Store{maxBytes: uint64(maxBytes), held: map[int]*held{}}
}

// Clear drops everything, for a new computation with the same tasks.
func (s *Store) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.held)
}

// Newest returns a copy of the newest whole state of a task, or false if there is none.
func (s *Store) Newest(task int) (State, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.held[task]
	if h == nil || !h.isWhole {
		return State{}, false
	}
	return State{task, h.whole.iteration, slices.Clone(h.data)}, true
}

// Bytes returns how much memory the states take.
func (s *Store) Bytes() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.held {
		n += cap(h.data) + cap(h.part)
	}
	return n
}

// put takes a piece of a state of a task, and returns how much of it is here; 0 says that it is not taken: it is too
// large, no newer than the one that is held, not what its hash says, or the piece is not the next one. The last whole one
// stays until a newer one is whole.
func (s *Store) put(task int, m message) (taken uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.held[task]
	if h == nil {
		h = &held{}
		s.held[task] = h
	}
	id := identity{task, m.iteration, m.length, m.sum}
	switch {
	case id.length > s.maxBytes || h.isWhole && id.iteration <= h.whole.iteration:
		return 0
	case m.offset == 0:
		h.begin(id)
	case !h.isArriving || id != h.next:
		return 0
	}
	if m.offset != uint64(len(h.part)) || uint64(len(m.data)) > id.length-m.offset {
		h.isArriving = false
		return 0
	}
	h.add(m.data)
	if uint64(len(h.part)) == id.length && !h.finish() {
		return 0
	}
	return m.offset + uint64(len(m.data))
}

// begin drops what is arriving for a newer state.
func (h *held) begin(id identity) {
	h.isArriving, h.next, h.part = true, id, h.part[:0]
	h.hash = newHash(id.task, id.iteration, id.length)
}

// add adds a piece. It takes memory as bytes come, not as the sender announces, and never above the length.
func (h *held) add(b []byte) {
	if need := len(h.part) + len(b); need > cap(h.part) {
		grown := make([]byte, len(h.part), min(h.next.length, uint64(max(need, 2*cap(h.part)))))
		copy(grown, h.part)
		h.part = grown
	}
	h.part = append(h.part, b...)
	h.hash.Write(b)
}

// finish makes what has arrived the newest state, if it is what its hash says. The memory of the last one is for the next.
func (h *held) finish() bool {
	h.isArriving = false
	if h.hash.Sum64() != h.next.sum {
		return false
	}
	h.isWhole, h.whole = true, h.next
	h.data, h.part = h.part, h.data[:0]
	return true
}

// newest returns the identity of the newest whole state of a task.
func (s *Store) newest(task int) (identity, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.held[task]; h != nil && h.isWhole {
		return h.whole, true
	}
	return identity{}, false
}

// piece returns a copy of at most n bytes of a state from an offset on, or false if the state is not here any more.
func (s *Store) piece(id identity, offset uint64, n int) ([]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.held[id.task]
	if h == nil || !h.isWhole || h.whole.iteration != id.iteration || h.whole.sum != id.sum || offset > h.whole.length {
		return nil, false
	}
	b := h.data[offset:]
	return slices.Clone(b[:min(n, len(b))]), true
}
