package partitioned

import (
	"testing"

	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
)

// A sender's offer is checked before it is used.
func TestPartitionOffers(t *testing.T) {
	for _, c := range []struct {
		o  offer
		ok bool
	}{
		{offer{Tag: 0, Partitions: 1, Bytes: 8}, true},
		{offer{Tag: mpi.MaxTag, Partitions: 1, Bytes: 0}, true},
		{offer{Tag: mpi.MaxTag, Partitions: 2, Bytes: 0}, false},
		{offer{Tag: -1, Partitions: 1}, false},
		{offer{Partitions: 0}, false},
		{offer{Partitions: -1}, false},
		{offer{Partitions: MaxPartitions + 1}, false},
		{offer{Partitions: 3, Bytes: 8}, false},
		{offer{Partitions: 1, Bytes: -8}, false},
	} {
		if err := c.o.valid(); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c.o, err)
		}
	}
}
