package daemon

import (
	"runtime"
	"runtime/debug"
	"testing"
)

// Memory is returned once a load is over, and not again and again while a daemon needs it.
func TestReturns(t *testing.T) {
	const mib = 1 << 20
	r := new(returns)
	for i, c := range []struct {
		held  uint64
		due   bool
		after uint64 // what is held then, if it is due
	}{
		{30 * mib, false, 0}, // the start
		{30 * mib, true, 20 * mib},
		{24 * mib, false, 0},
		{90 * mib, false, 0}, // a load
		{100 * mib, false, 0},
		{100 * mib, true, 90 * mib}, // which needs it
		{95 * mib, false, 0},
		{95 * mib, false, 0},
		{40 * mib, false, 0}, // the system's own scavenger
		{42 * mib, false, 0},
		{49 * mib, false, 0},
		{49 * mib, true, 21 * mib},
	} {
		if got := r.due(c.held); got != c.due {
			t.Errorf("question %d, of %d MiB: %v", i, c.held/mib, got)
		}
		if c.due {
			r.floor = c.after
		}
	}
}

// What nothing refers to is not held after it was returned.
func TestHeldMemory(t *testing.T) {
	before := heldMemory()
	flood := make([]byte, 64<<20)
	for i := range flood {
		flood[i] = 1
	}
	under := heldMemory()
	runtime.KeepAlive(flood)
	debug.FreeOSMemory()
	if after := heldMemory(); under < before+60<<20 || after > under-60<<20 {
		t.Errorf("%d MiB before, %d under load, %d after", before>>20, under>>20, after>>20)
	}
}
