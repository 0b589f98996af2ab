package daemon

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	returnEvery = time.Second
	returnFrom  = 8 << 20 // bytes
	returnPause = 60      // questions at most between two times, where memory is needed
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
			r.returned(heldMemory())
		}
	}
}

// returns decides when memory is returned: when much more is held than after another time, and no more than
// at the last question; more and more rarely where there is nothing to return.
type returns struct {
	least         uint64 // bytes held after any time; 0: there was none
	last          uint64 // bytes held at the last question
	pause, passed int    // questions
}

// due reports whether to return memory now.
func (r *returns) due(held uint64) bool {
	if rises := held > r.last+returnFrom/2; rises {
		r.last, r.pause, r.passed = held, 1, 0
		return false
	}
	r.last, r.passed = held, r.passed+1
	return held > r.least+returnFrom && r.passed >= r.pause
}

// returned records what is held after that.
func (r *returns) returned(held uint64) {
	r.pause, r.passed = min(2*r.pause, returnPause), 0
	if held+returnFrom/2 < r.last {
		r.pause = 1 // there may be more soon: what has ended is still being closed
	}
	if r.last = held; r.least == 0 || held < r.least {
		r.least = held
	}
}

// heldMemory returns how many bytes Go's runtime has from the system.
func heldMemory() uint64 {
	s := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64() - s[1].Value.Uint64()
}
