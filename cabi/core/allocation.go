package core

import (
	"strconv"
	"sync"
)

// AllocateMemory returns the address of memory of C's that is not used otherwise, 0 if there is none, and FreeMemory gives it
// back. The alignment is a power of two. The library around this package sets them.
var (
	AllocateMemory = func(size, alignment uintptr) uintptr { panic("cabi/core: no C to call") }
	FreeMemory     = func(address uintptr) { panic("cabi/core: no C to call") }
)

// minAlignment is the size of a cache line: it suits any type, and threads that use memory of different calls do not share one.
const minAlignment = 64

// allocated has the addresses that the program got and did not free.
var allocated = struct {
	sync.Mutex
	addresses map[uintptr]struct{}
}{addresses: map[uintptr]struct{}{}}

// AllocMem allocates memory (MPI-5.0, section 10.1). That of 0 bytes has an address, too, which is to be freed.
func AllocMem(size int64, info, baseptr uintptr) int32 {
	address, err := allocate(size, info)
	if err == nil {
		store(baseptr, address)
	}
	return onWorld("MPI_Alloc_mem", err)
}

func allocate(size int64, info uintptr) (uintptr, error) {
	if size < 0 {
		return 0, failure(errArg, "memory of %d bytes", size)
	}
	alignment, err := alignmentOf(info)
	if err != nil {
		return 0, err
	}
	address := AllocateMemory(uintptr(max(size, 1)), alignment)
	if address == 0 {
		return 0, failure(errNoMem, "there is no memory of %d bytes that are aligned to %d", size, alignment)
	}
	allocated.Lock()
	defer allocated.Unlock()
	allocated.addresses[address] = struct{}{}
	return address, nil
}

// alignmentOf returns the alignment that an info asks for, or more.
func alignmentOf(info uintptr) (uintptr, error) {
	hints, err := infoOf(info)
	if err != nil || hints == nil {
		return minAlignment, err
	}
	text, ok := hints.Get("mpi_minimum_memory_alignment")
	if !ok {
		return minAlignment, nil
	}
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil || n == 0 || n&(n-1) != 0 {
		return 0, failure(errInfoValue, "mpi_minimum_memory_alignment is %q, and no power of two", text)
	}
	return max(uintptr(n), minAlignment), nil
}

// FreeMem frees it. The argument is the address itself, in C and in Fortran, where it is that of the array; 0 is freed at once,
// as programs expect from other libraries.
func FreeMem(base uintptr) int32 {
	if base == 0 {
		return success
	}
	allocated.Lock()
	_, ok := allocated.addresses[base]
	delete(allocated.addresses, base)
	allocated.Unlock()
	if !ok {
		return onWorld("MPI_Free_mem", failure(errBase, "%#x is no address that MPI_Alloc_mem returned, or was freed", base))
	}
	FreeMemory(base)
	return success
}
