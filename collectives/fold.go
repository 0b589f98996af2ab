package collectives

// fold maps p ranks to pow2 seats: ranks 2i and 2i+1 below 2*extra share seat
// i, which one of them takes; each rank above has a seat of its own. Seats are
// in rank order.
type fold struct {
	rank, pow2, extra int
	first             int // the rank that takes a shared seat; the odd rank takes every other one
}

func newFold(rank, size, first int) fold {
	f := fold{rank: rank, pow2: 1, first: first}
	for f.pow2*2 <= size {
		f.pow2 *= 2
	}
	f.extra = size - f.pow2
	return f
}

func (f fold) foldedAway() bool { return f.rank < 2*f.extra && f.rankOf(f.position()) != f.rank }
func (f fold) actsForTwo() bool { return f.rank < 2*f.extra && f.rankOf(f.position()) == f.rank }

// partner is the rank that shares this one's seat, where one does.
func (f fold) partner() int { return f.rank ^ 1 }

func (f fold) position() int { return f.positionOf(f.rank) }

func (f fold) positionOf(rank int) int {
	if rank < 2*f.extra {
		return rank / 2
	}
	return rank - f.extra
}

func (f fold) rankOf(seat int) int {
	switch {
	case seat >= f.extra:
		return seat + f.extra
	case f.first/2 == seat && f.first >= 0:
		return f.first
	}
	return 2*seat + 1
}
