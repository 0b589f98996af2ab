package datatype

import "unsafe"

// copyBlocks copies n blocks of size bytes: block i from src+so+i*ss to dst+do+i*ds. Addresses are
// formed from the base for each block, because a pointer beyond the last block could be invalid.
//
// The common sizes are moved through registers; a memmove call per block costs several times more.
func copyBlocks(dst unsafe.Pointer, do, ds int64, src unsafe.Pointer, so, ss, size, n int64) {
	switch size {
	case 1:
		copyEach[uint8](dst, do, ds, src, so, ss, n)
	case 2:
		copyEach[uint16](dst, do, ds, src, so, ss, n)
	case 4:
		copyEach[uint32](dst, do, ds, src, so, ss, n)
	case 8:
		copyEach[uint64](dst, do, ds, src, so, ss, n)
	case 12:
		copyEach[[3]uint32](dst, do, ds, src, so, ss, n)
	case 16:
		copyEach[[2]uint64](dst, do, ds, src, so, ss, n)
	case 24:
		copyEach[[3]uint64](dst, do, ds, src, so, ss, n)
	case 32:
		copyEach[[4]uint64](dst, do, ds, src, so, ss, n)
	case 3:
		copyEnds[uint16](dst, do, ds, src, so, ss, size, n)
	case 5, 6, 7:
		copyEnds[uint32](dst, do, ds, src, so, ss, size, n)
	case 9, 10, 11, 13, 14, 15:
		copyEnds[uint64](dst, do, ds, src, so, ss, size, n)
	default:
		for ; n > 0; n-- {
			copyRun(dst, do, src, so, size)
			do += ds
			so += ss
		}
	}
}

// copyEach is copyBlocks for blocks of the size of T, which has no pointers.
// T's alignment does not matter: the supported machines need none, and the
// compiler assumes none for such moves.
func copyEach[T any](dst unsafe.Pointer, do, ds int64, src unsafe.Pointer, so, ss, n int64) {
	for ; n > 0; n-- {
		*(*T)(unsafe.Add(dst, do)) = *(*T)(unsafe.Add(src, so))
		do += ds
		so += ss
	}
}

// copyEnds is copyBlocks for blocks that two Ts cover: it moves the first and the last bytes of
// each block, and those in the middle twice.
func copyEnds[T any](dst unsafe.Pointer, do, ds int64, src unsafe.Pointer, so, ss, size, n int64) {
	tail := size - int64(unsafe.Sizeof(*(*T)(nil)))
	for ; n > 0; n-- {
		*(*T)(unsafe.Add(dst, do)) = *(*T)(unsafe.Add(src, so))
		*(*T)(unsafe.Add(dst, do+tail)) = *(*T)(unsafe.Add(src, so+tail))
		do += ds
		so += ss
	}
}

// copyRun copies size bytes.
func copyRun(dst unsafe.Pointer, do int64, src unsafe.Pointer, so, size int64) {
	copy(unsafe.Slice((*byte)(unsafe.Add(dst, do)), size), unsafe.Slice((*byte)(unsafe.Add(src, so)), size))
}
