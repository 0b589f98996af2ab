package storm

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	tallies "github.com/isthmus-grid/isthmus/examples/tally"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// tally is what a rank, or all together, did and took.
type tally struct {
	Ranks    int     `json:"ranks"`
	Rounds   int     `json:"rounds"`
	Seconds  float64 `json:"seconds"`
	Messages uint64  `json:"messages"`
	Bytes    uint64  `json:"bytes"`

	// Memory in bytes, of all processes together but for the last: resident after
	// the first round and after the last, and at the worst moment of each.
	FirstBytes uint64 `json:"first_bytes"`
	LastBytes  uint64 `json:"last_bytes"`
	PeakBytes  uint64 `json:"peak_bytes"`
	MaxBytes   uint64 `json:"most_bytes"` // the worst moment of the largest
}

// sum adds the ranks' tallies, of one replica each; rank 0 has the result.
func sum(ctx context.Context, comm *mpilib.Comm, t tally) (tally, error) {
	mine, err := tallies.Decided(ctx, comm, []uint64{t.Messages, t.Bytes, t.FirstBytes, t.LastBytes, t.PeakBytes})
	if err != nil {
		return t, err
	}
	seconds, err := tallies.Decided(ctx, comm, []float64{t.Seconds})
	if err != nil {
		return t, err
	}
	all, most := make([]uint64, len(mine)), []uint64{0}
	if err := mpilib.Reduce(ctx, comm, mine, all, mpilib.Sum, 0); err != nil {
		return t, err
	}
	if err := mpilib.Reduce(ctx, comm, mine[4:], most, mpilib.Max, 0); err != nil {
		return t, err
	}
	t.Ranks, t.Seconds = comm.Size(), seconds[0]
	t.Messages, t.Bytes, t.FirstBytes, t.LastBytes, t.PeakBytes, t.MaxBytes = all[0], all[1], all[2], all[3], all[4], most[0]
	return t, nil
}

func (t tally) print(w io.Writer) error {
	const mib = 1 << 20
	_, err := fmt.Fprintf(w, "%d rounds in %.1f s: %d messages, %d MiB, all right\nmemory: %d MiB after the first round, %d at the end, %d at most; the largest process %d\n",
		t.Rounds, t.Seconds, t.Messages, t.Bytes/mib, t.FirstBytes/mib, t.LastBytes/mib, t.PeakBytes/mib, t.MaxBytes/mib)
	return err
}

// memory returns how much of it the process has resident, and had at most, in bytes;
// where the system does not say (only Linux does), what Go has taken.
func memory() (now, peak uint64) {
	text, err := os.ReadFile("/proc/self/status")
	if err == nil {
		for line := range strings.Lines(string(text)) {
			var kib uint64
			if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &kib); err == nil {
				now = kib << 10
			}
			if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kib); err == nil {
				peak = kib << 10
			}
		}
	}
	if now > 0 && peak > 0 {
		return now, peak
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Sys, m.Sys
}
