package datatype

import "unsafe"

// A Piece is a range of a program's memory, relative to a base address.
type Piece struct {
	Displacement int64
	Length       int64 // at least 1
}

// Bytes returns the memory of a piece, for writev or readv. The slice aliases it and is valid as
// long as base is.
func (p Piece) Bytes(base unsafe.Pointer) []byte {
	return unsafe.Slice((*byte)(unsafe.Add(base, p.Displacement)), p.Length)
}

// Pieces appends to pieces the memory of the message of count elements, from packed byte pos on, in
// the order of the message. It stops when pieces' capacity is used up, and never allocates. It
// returns the position that pieces reach, which is the message's size when they are complete.
// Adjacent pieces are joined.
func (t *Type) Pieces(pieces []Piece, count, pos int64) ([]Piece, int64, error) {
	p := t.plan.Load()
	if p == nil || uint64(count) > uint64(p.maxCount) || uint64(pos) > uint64(count*p.size) {
		return pieces, pos, t.refuse(p, count, pos)
	}
	if total := count * p.size; pos < total {
		l := lister{pieces: pieces, first: len(pieces), pos: pos}
		if p.dense {
			l.run(p.body.disp+pos, total-pos)
		} else {
			l.loop(p.body, 0, p.step, pos, total)
		}
		pieces, pos = l.pieces, l.pos
	}
	return pieces, pos, nil
}

// A lister collects pieces. Its methods return false when there is no room.
type lister struct {
	pieces []Piece
	first  int   // the first of this call's pieces
	pos    int64 // pieces cover the packed bytes up to here
}

func (l *lister) run(mem, size int64) bool {
	if i := len(l.pieces) - 1; i >= l.first && l.pieces[i].Displacement+l.pieces[i].Length == mem {
		l.pieces[i].Length += size
	} else if len(l.pieces) == cap(l.pieces) {
		return false
	} else {
		l.pieces = append(l.pieces, Piece{mem, size})
	}
	l.pos += size
	return true
}

// loop lists bytes from to to of many instances of nd, step bytes apart.
func (l *lister) loop(nd *node, mem, step, from, to int64) bool {
	size := nd.size
	for i := from / size; from < to; i++ {
		end := min((i+1)*size, to)
		if !l.node(nd, mem+i*step, from-i*size, end-i*size) {
			return false
		}
		from = end
	}
	return true
}

// node lists bytes from to to of one instance of nd.
func (l *lister) node(nd *node, mem, from, to int64) bool {
	mem += nd.disp
	switch nd.op {
	case opRun:
		return l.run(mem+from, to-from)
	case opLoop:
		return l.loop(nd.body, mem, nd.step, from, to)
	case opIndexed:
		size := nd.body.size
		for i := from / size; from < to; i++ {
			end := min((i+1)*size, to)
			if !l.node(nd.body, mem+nd.at[i], from-i*size, end-i*size) {
				return false
			}
			from = end
		}
	case opPieces, opSeq:
		for i := nd.find(from); from < to; i++ {
			start, end := nd.start(i), min(nd.ends[i], to)
			if nd.op == opPieces {
				if !l.run(mem+nd.at[i]+from-start, end-from) {
					return false
				}
			} else if !l.node(nd.kids[i], mem+nd.at[i], from-start, end-start) {
				return false
			}
			from = end
		}
	}
	return true
}
