//go:build unix

package datatype

import (
	"syscall"
	"testing"
)

// outsideGo returns memory that the garbage collector does not manage, as C's: its address may be
// kept as a number.
func outsideGo(t *testing.T, size int) []byte {
	b, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Munmap(b); err != nil {
			t.Error(err)
		}
	})
	return b
}
