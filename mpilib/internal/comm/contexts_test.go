package comm

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
)

// All numbers are used up before a process reports that none is left, and no two processes ever get
// the same.
func TestNewContext(t *testing.T) {
	const size = 3
	seen := map[uint32]bool{World: true, Self: true, Session: true}
	for rank := range size {
		var c Contexts
		c.Init(rank, size)
		for range 100 {
			id, err := c.New()
			if err != nil || seen[id] || id%ContextsPerComm != 0 {
				t.Fatalf("rank %d: context %d, %v", rank, id, err)
			}
			seen[id] = true
		}
		c.allocated = (1<<32-1)/ContextsPerComm/size - 2
		var err error
		var last uint32
		for range 5 {
			var id uint32
			if id, err = c.New(); err != nil {
				break
			}
			if id < last {
				t.Fatalf("rank %d: %d after %d", rank, id, last)
			}
			last = id
		}
		if !errors.Is(err, mpi.ErrContexts) || !strings.Contains(err.Error(), fmt.Sprintf("rank %d of the world", rank)) {
			t.Errorf("after all: %v", err)
		}
	}
}
