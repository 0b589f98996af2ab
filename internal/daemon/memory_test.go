package daemon

import (
	"runtime"
	"runtime/debug"
	"testing"
)

// Memory is returned once a load is over, again while that brings some, and rarely while a daemon needs it.
func TestReturns(t *testing.T) {
	const mib = 1 << 20
	r := new(returns)
	ask := func(what string, held uint64, due bool, after uint64) {
		t.Helper()
		if got := r.due(held * mib); got != due {
			t.Fatalf("%s, of %d MiB: %v", what, held, got)
		}
		if due {
			r.returned(after * mib)
		}
	}
	ask("the start", 30, false, 0)
	ask("settled", 30, true, 20)
	ask("little", 24, false, 0)
	ask("a load", 90, false, 0)
	ask("a load", 99, false, 0)
	ask("its end", 99, true, 60)
	ask("what was closed since", 60, true, 22)
	ask("nothing is left", 22, false, 0)
	ask("a load that is needed", 90, false, 0)
	for pause := 1; pause < 64; pause *= 2 {
		for range min(pause, returnPause) - 1 {
			ask("needed", 91, false, 0)
		}
		ask("needed", 91, true, 90)
	}
	ask("more", 130, false, 0)
	ask("and its end", 130, true, 21)
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
