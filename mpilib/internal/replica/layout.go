package replica

import (
	"fmt"
	"iter"
	"slices"
)

// A Layout numbers the processes of a job, and says which of them holds which seat. At first replica c of a
// rank is process c*Ranks + rank, so that the first replicas have the numbers of a job without replicas. The
// other numbers, from there on, are spare: a process that has one takes the seat of a lost one, in
// the next layout.
type Layout struct {
	Ranks    int    // of the world that the program sees
	Replicas int    // of each rank
	Spares   int    // process numbers beyond those that the job begins with
	Epoch    uint32 // how many layouts came before

	holders []int // by seat; nil: as at first
	seats   []int // by process, the inverse; -1: none
}

// A Seat is the place of a process in a layout.
type Seat struct{ Rank, Replica int }

// Unseated is the rank of a process that holds no seat. It is none of a receive's, nor AnySource.
const Unseated = -3

// A Move says that a process with a spare number holds a seat, given by the process that held it at first.
type Move struct{ Seat, Process int }

// Size returns the number of process numbers.
func (l Layout) Size() int { return l.Seats() + l.Spares }

// Seats returns the number of seats.
func (l Layout) Seats() int { return l.Ranks * l.Replicas }

// seat numbers a seat: it is the process that held it at first.
func (l Layout) seat(rank, replica int) int { return replica*l.Ranks + rank }

// Process returns the number of a rank's replica.
func (l Layout) Process(rank, replica int) int { return l.holder(l.seat(rank, replica)) }

// holder returns the process that holds a seat.
func (l Layout) holder(seat int) int {
	if l.holders == nil {
		return seat
	}
	return l.holders[seat]
}

// seatOf returns the seat that a process holds, or -1.
func (l Layout) seatOf(process int) int {
	switch {
	case l.seats != nil:
		return l.seats[process]
	case process < l.Seats():
		return process
	}
	return -1
}

// Rank returns the rank of a process, or Unseated.
func (l Layout) Rank(process int) int {
	if s := l.seatOf(process); s >= 0 {
		return s % l.Ranks
	}
	return Unseated
}

// Replica returns which replica of its rank a process is. It holds a seat.
func (l Layout) Replica(process int) int { return l.seatOf(process) / l.Ranks }

// Holders yields the processes of a rank; none of Unseated.
func (l Layout) Holders(rank int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for c := range l.Replicas {
			if rank == Unseated || !yield(l.Process(rank, c)) {
				return
			}
		}
	}
}

// Newcomers returns the processes of a rank that were none of it in a layout before.
func (l Layout) Newcomers(rank int, before Layout) (all []int) {
	for c := range l.Replicas {
		if q := l.Process(rank, c); q != before.Process(rank, c) {
			all = append(all, q)
		}
	}
	return all
}

// Name describes a process.
func (l Layout) Name(process int) string {
	if l.seatOf(process) < 0 {
		return fmt.Sprintf("process %d of the job", process)
	}
	return fmt.Sprintf("replica %d of rank %d of the world", l.Replica(process), l.Rank(process))
}

// Moves returns what is not as at first, by seat.
func (l Layout) Moves() (moves []Move) {
	for seat, process := range l.holders {
		if process != seat {
			moves = append(moves, Move{seat, process})
		}
	}
	return moves
}

// with returns the layout of an epoch that differs from the first one by moves.
func (l Layout) with(epoch uint32, moves []Move) Layout {
	l.Epoch, l.holders, l.seats = epoch, make([]int, l.Seats()), slices.Repeat([]int{-1}, l.Size())
	for seat := range l.holders {
		l.holders[seat] = seat
	}
	for _, m := range moves {
		l.holders[m.Seat] = m.Process
	}
	for seat, process := range l.holders {
		l.seats[process] = seat
	}
	return l
}

// next returns the layout that follows, in which moves are made.
func (l Layout) next(moves []Move) Layout {
	n := l.with(l.Epoch+1, l.Moves())
	for _, m := range moves {
		n.seats[n.holders[m.Seat]] = -1
		n.holders[m.Seat], n.seats[m.Process] = m.Process, m.Seat
	}
	return n
}

// A Table says which replica of a rank serves a replica of another: sends it its messages. It is a function
// of which replicas live.
type Table uint8

// The tables.
const (
	// Parallel: replica c serves replica c, or else the lowest that lives. Without failures
	// sets of replicas exchange acknowledgements only.
	Parallel Table = iota
	// Primary: the lowest that lives serves all (the master of P2P-MPI).
	Primary
)

func (t Table) String() string {
	switch t {
	case Parallel:
		return "parallel"
	case Primary:
		return "primary"
	}
	return fmt.Sprintf("Table(%d)", uint8(t))
}

// server returns which replica serves the given one of another rank, if alive says which live, or -1.
func (t Table) server(replicas, to int, alive func(replica int) bool) int {
	if t == Parallel && alive(to) {
		return to
	}
	return lowest(replicas, alive)
}

// lowest returns the lowest replica that lives, or -1.
func lowest(replicas int, alive func(replica int) bool) int {
	for c := range replicas {
		if alive(c) {
			return c
		}
	}
	return -1
}
