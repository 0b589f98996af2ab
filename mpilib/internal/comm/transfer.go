package comm

import (
	"fmt"

	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
)

// Transfer describes a send, a receive, a probe or a collective call to users.
type Transfer struct {
	Comm *Core
	Call string // name of a collective call; then the fields below are unused
	Send bool
	Peer int // rank of Comm, AnySource or ProcNull
	Tag  int // or AnyTag
}

// String returns "send to rank 3 of world, tag 7".
func (t Transfer) String() string {
	if t.Call != "" {
		return t.Call + " on " + t.Comm.Name()
	}
	s := "receive from "
	if t.Send {
		s = "send to "
	}
	switch t.Peer {
	case mpi.AnySource:
		s += "any rank of " + t.Comm.Name()
	case mpi.ProcNull:
		s += "ProcNull on " + t.Comm.Name()
	default:
		s += fmt.Sprintf("rank %d of %s", t.Peer, t.Comm.Name())
	}
	if t.Tag == mpi.AnyTag {
		return s + ", any tag"
	}
	return fmt.Sprintf("%s, tag %d", s, t.Tag)
}
