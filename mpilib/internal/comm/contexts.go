package comm

import (
	"fmt"
	"math"
	"sync"

	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
)

// Every communicator owns ContextsPerComm consecutive contexts, so that its different kinds of
// messages cannot match each other.
const (
	PointToPoint = iota
	Collective
	Members    // of CreateGroup, which only some members call
	Leaders    // of IntercommCreate's leaders
	Offers     // of partitioned sends, before their first start
	Partitions // of their partitions
	ContextsPerComm
)

// The contexts that need no agreement.
const (
	World   = 0 * ContextsPerComm
	Self    = 1 * ContextsPerComm // each process has one; they share no process
	Session = 2 * ContextsPerComm // of CommFromGroup, between any processes
	Debug   = Self + Leaders      // of the watchers; Self has no other leader to talk to
	first   = 3 * ContextsPerComm

	// Predefined is how many contexts each process has from the beginning.
	Predefined = first

	// Numbers is the context of the communicator of all process numbers, in jobs with spare ones. It is
	// the first that process 0 would allocate, which skips it.
	Numbers = first
)

// Contexts allocates the contexts of new communicators. Call Init first.
type Contexts struct {
	rank, size int

	mu        sync.Mutex
	allocated uint32 // allocated by this process
}

// Init is for the process of the given rank in a world of the given size.
func (c *Contexts) Init(rank, size int) { c.rank, c.size = rank, size }

// Allocated returns how many contexts this process has allocated.
func (c *Contexts) Allocated() uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.allocated
}

// Skip leaves the next n contexts unused.
func (c *Contexts) Skip(n uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.allocated += n
}

// New returns the context of a new communicator, which no other communicator of the job has or will
// have. One process calls it and sends the result to the members.
//
// It is unique because each process allocates its own numbers, those whose remainder is its world
// rank, each once, under a lock. So no two calls anywhere return the same number, regardless of the
// goroutines and communicators involved and of the processes that learn it. Only the calling
// process has to be agreed on; compare the usual maximum of all processes' next free numbers, where
// two goroutines of one process can get the same number on two communicators. Numbers are not
// reused: a late message finds no other communicator.
func (c *Contexts) New() (uint32, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := Context(c.allocated, c.rank, c.size)
	if id > math.MaxUint32-ContextsPerComm {
		return 0, fmt.Errorf("%w: rank %d of the world has led the making of %d; keep communicators instead of making new ones",
			mpi.ErrContexts, c.rank, c.allocated)
	}
	c.allocated++
	return uint32(id), nil
}

// Reserve calls New now, and returns a function that returns the result.
func (c *Contexts) Reserve() func() (uint32, error) {
	id, err := c.New()
	return func() (uint32, error) { return id, err }
}

// Context is the context that a rank of a world of size ranks allocates after made others.
func Context(made uint32, rank, size int) uint64 {
	return first + (uint64(made)*uint64(size)+uint64(rank))*ContextsPerComm
}

// Unallocated reports whether a context is one that only this process could have allocated, and has not:
// then no process can send in it.
func (c *Contexts) Unallocated(context uint32) bool {
	if context < first {
		return false
	}
	n := uint64(context-first) / ContextsPerComm
	size := uint64(c.size)
	c.mu.Lock()
	defer c.mu.Unlock()
	return n%size == uint64(c.rank) && n/size >= uint64(c.allocated)
}
