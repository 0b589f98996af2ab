package mpilib

import (
	"testing"
	"unsafe"
)

// A request that is nothing special fits a line of the cache, and a slab a size of which the
// runtime has pieces.
func TestRequestFitsALine(t *testing.T) {
	if n := unsafe.Sizeof(Request{}); n > 64 {
		t.Errorf("a Request has %d bytes", n)
	}
	if n := unsafe.Sizeof(slab{}); n > 4096 {
		t.Errorf("a slab has %d bytes", n)
	}
}
