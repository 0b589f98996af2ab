package debug

import "testing"

// TestCallsitesAreBounded: a program that recurses in many ways fills no memory.
func TestCallsitesAreBounded(t *testing.T) {
	for pattern := range 2 * maxCallsites {
		left(pattern, 13)
	}
	if n := len(callsites.places); n != maxCallsites {
		t.Errorf("%d call sites are kept, want %d", n, maxCallsites)
	}
}

// left and right call each other, or themselves, by the bits of pattern.
//
//go:noinline
func left(pattern, depth int) {
	switch {
	case depth == 0:
		CurrentCallsite()
	case pattern&1 == 0:
		left(pattern>>1, depth-1)
	default:
		right(pattern>>1, depth-1)
	}
}

//go:noinline
func right(pattern, depth int) {
	switch {
	case depth == 0:
		CurrentCallsite()
	case pattern&1 == 0:
		left(pattern>>1, depth-1)
	default:
		right(pattern>>1, depth-1)
	}
}
