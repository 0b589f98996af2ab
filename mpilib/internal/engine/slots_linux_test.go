package engine

import (
	"testing"

	"github.com/isthmus-grid/isthmus/internal/ipc/shm"
	"github.com/isthmus-grid/isthmus/mpilib/internal/engine/slot"
)

func TestSlotOverSharedMemory(t *testing.T) {
	for _, size := range []int{1, 1000, shm.MaxRecord - slot.Header, shm.MaxRecord, 1 << 20} {
		es, _ := together(t)
		streamValues(t, es, size, uint64(sweep(60, 150)))
	}
}
