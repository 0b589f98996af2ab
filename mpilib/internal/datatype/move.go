package datatype

import "unsafe"

// A mover copies between a program's memory and a range of packed bytes. Offsets into the memory
// are relative to its base, offsets into the packed bytes to the start of the range.
type mover struct {
	memory unsafe.Pointer
	packed unsafe.Pointer
	unpack bool // packed to memory; otherwise memory to packed
}

// Several instances of a part are copied part by part, not instance by instance: three fields of a
// thousand structs are three tight loops. This is done in batches of about batchBytes, so that the
// structs are still in the cache for the next field.
const (
	batchBytes = 16 << 10
	batchMin   = 8
)

// batch returns how many instances of size packed bytes, step bytes apart in memory, to copy at
// once.
func batch(size, step int64) int64 {
	return int64(max(batchMin, batchBytes/max(uint64(size), magnitude(step))))
}

// copies copies n whole instances of a node: the first at offset mem of the
// memory and pos of the packed bytes, the others each mstep and pstep on.
func (m *mover) copies(nd *node, mem, mstep, pos, pstep, n int64) {
	mem += nd.disp
	switch {
	case nd.op == opRun:
		m.blocks(mem, mstep, pos, pstep, nd.size, n)
	case nd.op == opLoop && (n == 1 || nd.count >= n):
		for ; n > 0; n-- {
			m.copies(nd.body, mem, nd.step, pos, nd.body.size, nd.count)
			mem += mstep
			pos += pstep
		}
	case n == 1:
		m.parts(nd, mem, mstep, pos, pstep, 1)
	default:
		for most := batch(nd.size, mstep); n > 0; {
			k := min(n, most)
			m.parts(nd, mem, mstep, pos, pstep, k)
			mem += k * mstep
			pos += k * pstep
			n -= k
		}
	}
}

// parts copies n whole instances of a node that has parts, part by part.
func (m *mover) parts(nd *node, mem, mstep, pos, pstep, n int64) {
	switch nd.op {
	case opLoop:
		for i := range nd.count {
			m.copies(nd.body, mem+i*nd.step, mstep, pos+i*nd.body.size, pstep, n)
		}
	case opIndexed:
		if n == 1 && nd.body.op == opRun {
			m.scatter(nd.at, mem+nd.body.disp, pos, nd.body.size)
			return
		}
		for i, at := range nd.at {
			m.copies(nd.body, mem+at, mstep, pos+int64(i)*nd.body.size, pstep, n)
		}
	case opPieces:
		start := int64(0)
		for i, at := range nd.at {
			m.blocks(mem+at, mstep, pos+start, pstep, nd.ends[i]-start, n)
			start = nd.ends[i]
		}
	case opSeq:
		start := int64(0)
		for i, at := range nd.at {
			m.copies(nd.kids[i], mem+at, mstep, pos+start, pstep, n)
			start = nd.ends[i]
		}
	}
}

// blocks copies n blocks of size bytes.
func (m *mover) blocks(mem, mstep, pos, pstep, size, n int64) {
	if mstep == size && pstep == size {
		size, n = size*n, 1
	}
	if m.unpack {
		copyBlocks(m.memory, mem, mstep, m.packed, pos, pstep, size, n)
	} else {
		copyBlocks(m.packed, pos, pstep, m.memory, mem, mstep, size, n)
	}
}

// scatter copies blocks of size bytes at each of the displacements at.
func (m *mover) scatter(at []int64, mem, pos, size int64) {
	switch {
	case size == 8 && m.unpack:
		scatterEach[uint64](m.memory, mem, at, m.packed, pos)
	case size == 8:
		gatherEach[uint64](m.packed, pos, m.memory, mem, at)
	case size == 4 && m.unpack:
		scatterEach[uint32](m.memory, mem, at, m.packed, pos)
	case size == 4:
		gatherEach[uint32](m.packed, pos, m.memory, mem, at)
	default:
		for _, d := range at {
			m.blocks(mem+d, 0, pos, 0, size, 1)
			pos += size
		}
	}
}

// scatterEach and gatherEach are copyEach with a list of displacements on the memory side.
func scatterEach[T any](dst unsafe.Pointer, do int64, at []int64, src unsafe.Pointer, so int64) {
	for _, d := range at {
		*(*T)(unsafe.Add(dst, do+d)) = *(*T)(unsafe.Add(src, so))
		so += int64(unsafe.Sizeof(*(*T)(nil)))
	}
}

func gatherEach[T any](dst unsafe.Pointer, do int64, src unsafe.Pointer, so int64, at []int64) {
	for _, d := range at {
		*(*T)(unsafe.Add(dst, do)) = *(*T)(unsafe.Add(src, so+d))
		do += int64(unsafe.Sizeof(*(*T)(nil)))
	}
}

// loop copies bytes from to to of many instances of a node that are step
// bytes apart in memory, the first at offset mem. Byte from is at offset pos
// of the packed bytes. There must be enough instances.
func (m *mover) loop(nd *node, mem, step, from, to, pos int64) {
	if from == to {
		return
	}
	size := nd.size
	mem += from / size * step
	if head := from % size; head != 0 {
		end := min(size, head+to-from)
		m.piece(nd, mem, head, end, pos)
		mem += step
		pos += end - head
		from += end - head
	}
	whole := (to - from) / size
	if whole > 0 {
		m.copies(nd, mem, step, pos, size, whole)
		mem += whole * step
		pos += whole * size
		from += whole * size
	}
	if from < to {
		m.piece(nd, mem, 0, to-from, pos)
	}
}

// piece copies bytes from to to of one instance of a node.
func (m *mover) piece(nd *node, mem, from, to, pos int64) {
	if from == 0 && to == nd.size {
		m.copies(nd, mem, 0, pos, 0, 1)
		return
	}
	mem += nd.disp
	switch nd.op {
	case opRun:
		m.blocks(mem+from, 0, pos, 0, to-from, 1)
	case opLoop:
		m.loop(nd.body, mem, nd.step, from, to, pos)
	case opIndexed:
		size := nd.body.size
		for i := from / size; from < to; i++ {
			head := from - i*size
			end := min(size, to-i*size)
			m.piece(nd.body, mem+nd.at[i], head, end, pos)
			pos += end - head
			from += end - head
		}
	case opPieces, opSeq:
		for i := nd.find(from); from < to; i++ {
			head := from - nd.start(i)
			end := min(nd.ends[i], to) - nd.start(i)
			if nd.op == opPieces {
				m.blocks(mem+nd.at[i]+head, 0, pos, 0, end-head, 1)
			} else {
				m.piece(nd.kids[i], mem+nd.at[i], head, end, pos)
			}
			pos += end - head
			from += end - head
		}
	}
}
