// Package memory reads and writes memory of a C program's, by addresses that are numbers.
package memory

import "unsafe"

// At returns a pointer to what is at an address of C's memory, or of Go's that the caller keeps alive. The address is read as a
// pointer, for arithmetic on one may not lead to another variable, as checkptr sees to.
func At[T any](address uintptr) *T { return *(**T)(unsafe.Pointer(&address)) }
