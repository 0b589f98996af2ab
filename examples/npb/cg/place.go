package cg

import "math/bits"

// place is where a rank stands in the grid of ranks, and which part of the
// problem is its own. The grid has as many columns as rows or twice as many.
// A rank holds a block of the matrix, rows [rowLow, rowHigh) and columns
// [colLow, colHigh), and of every vector the elements [colLow, colHigh), as
// all ranks of its grid column do.
//
// A product leaves elements [rowLow, rowHigh) with the whole grid row. Each
// rank then needs those of its columns, and the elements that it lacks are
// with its partner, who in turn needs some of its own: the transposed place
// in a square grid, in a wide one a place that has the rank as its partner
// too.
type place struct {
	row, col                         int
	partner                          int // rank
	rowLow, rowHigh, colLow, colHigh int
	// sendLow and sendHigh bound the partner's columns, all among our rows.
	sendLow, sendHigh int
}

func placeOf(rank, ranks, n int) place {
	rows := 1 << ((bits.Len(uint(ranks)) - 1) / 2)
	cols := ranks / rows
	wide := cols / rows // 1 or 2
	p := place{row: rank / cols, col: rank % cols}
	partnerRow, partnerCol := p.col/wide, wide*p.row+p.col%wide
	p.partner = partnerRow*cols + partnerCol
	p.rowLow, p.rowHigh = block(p.row, rows, n)
	p.colLow, p.colHigh = block(p.col, cols, n)
	p.sendLow, p.sendHigh = block(partnerCol, cols, n)
	return p
}

// block returns the i-th of parts even blocks of n.
func block(i, parts, n int) (low, high int) { return i * n / parts, (i + 1) * n / parts }
