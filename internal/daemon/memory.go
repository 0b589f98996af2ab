package daemon

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	returnEvery = 5 * time.Second
	returnFrom  = 8 << 20 // bytes
)

// returnMemory returns memory to the system when a load is over, until ctx ends. By itself Go finds out
// minutes later that nothing refers to it: its collector runs when as much was allocated again.
func returnMemory(ctx context.Context) {
	tick := time.NewTicker(returnEvery)
	defer tick.Stop()
	for r := new(returns); ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if r.due(heldMemory()) {
			debug.FreeOSMemory()
			r.floor = heldMemory()
		}
	}
}

// returns decides when memory is returned: when much more is held than after the last time, and no more
// than at the last question.
type returns struct {
	floor uint64 // bytes that cannot be returned, as of the last time
	last  uint64 // bytes held at the last question
}

func (r *returns) due(held uint64) bool {
	rises := held > r.last+returnFrom/2
	r.last, r.floor = held, min(r.floor, held)
	return !rises && held > r.floor+returnFrom
}

// heldMemory returns how many bytes Go's runtime has from the system.
func heldMemory() uint64 {
	s := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64() - s[1].Value.Uint64()
}
