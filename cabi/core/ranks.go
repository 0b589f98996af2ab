package core

import "github.com/isthmus-grid/isthmus/mpilib"

// Special ranks and tags of the standard's ABI; mpilib has other values.
const (
	anySource = int32(-1)
	anyTag    = int32(-2)
	procNull  = int32(-3)
	rootHere  = int32(-4) // MPI_ROOT
)

// noRank is a rank that no communicator has.
const noRank = -1 << 30

// rankOf translates a rank that the program gives: a root, source or destination.
func rankOf(rank int32) int {
	switch rank {
	case anySource:
		return mpilib.AnySource
	case procNull:
		return mpilib.ProcNull
	case rootHere:
		return mpilib.Root
	}
	if rank < 0 {
		return noRank
	}
	return int(rank)
}

// tagOf translates a tag.
func tagOf(tag int32) int {
	if tag == anyTag {
		return mpilib.AnyTag
	}
	if tag < 0 {
		return noRank
	}
	return int(tag)
}

// sourceFrom translates the source of a status.
func sourceFrom(rank int) int32 {
	switch rank {
	case mpilib.AnySource:
		return anySource
	case mpilib.ProcNull:
		return procNull
	}
	return int32(rank)
}

// tagFrom translates the tag of a status.
func tagFrom(tag int) int32 {
	if tag == mpilib.AnyTag {
		return anyTag
	}
	return int32(tag)
}
