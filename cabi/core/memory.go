package core

import (
	"bytes"
	"unsafe"

	"github.com/isthmus-grid/isthmus/cabi/memory"
)

// pointer makes an address of the program's memory a pointer.
func pointer(address uintptr) unsafe.Pointer { return unsafe.Pointer(memory.At[byte](address)) }

// elements is the program's memory as a slice.
func elements[T any](address uintptr, n int) []T {
	if n == 0 {
		return nil
	}
	return unsafe.Slice(memory.At[T](address), n)
}

// store puts a result where the program wants it.
func store[T any](address uintptr, value T) { *memory.At[T](address) = value }

// load reads what the program passed by address.
func load[T any](address uintptr) T { return *memory.At[T](address) }

// integers reads an array of counts or displacements: of 64 bits if wide is not 0, else of 32.
func integers(address uintptr, n int, wide int32) []int {
	out := make([]int, n)
	if wide != 0 {
		for i, v := range elements[int64](address, n) {
			out[i] = int(v)
		}
		return out
	}
	for i, v := range elements[int32](address, n) {
		out[i] = int(v)
	}
	return out
}

// copyText writes text, cut to fit into max bytes with its final zero, and returns its length. It is
// not inlined: Go 1.26 fails to compile a copy of constant text to such an address.
//
//go:noinline
func copyText(address uintptr, text string, max int) int {
	text = text[:min(len(text), max-1)]
	out := elements[byte](address, len(text)+1)
	out[copy(out, text)] = 0
	return len(text)
}

// storeText is copyText that stores the length where length is.
func storeText(address uintptr, text string, max int, length uintptr) {
	store(length, int32(copyText(address, text, max)))
}

// loadText reads text of the program's that ends with a zero, of less than max bytes; class is that of
// its error.
func loadText(address uintptr, max int, class int32) (string, error) {
	var text []byte
	for address != 0 {
		b := load[byte](address + uintptr(len(text)))
		if b == 0 {
			return string(text), nil
		}
		if text = append(text, b); len(text) == max {
			return "", failure(class, "%q is longer than %d bytes", text, max-1)
		}
	}
	return "", failure(class, "the text's address is 0")
}

// textAt reads a name of C, up to its zero or the longest that there is.
func textAt(address uintptr) string {
	var text bytes.Buffer
	for i := range uintptr(maxObjectName - 1) {
		c := load[byte](address + i)
		if c == 0 {
			break
		}
		text.WriteByte(c)
	}
	return text.String()
}
