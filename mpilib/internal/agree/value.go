package agree

// A Value is what is agreed on. Members contribute one each; the value agreed
// on is their sum, member by member of the struct as said here.
type Value struct {
	Flags  uint64 // and, as MPI_Comm_agree has it
	Max    uint64 // the greatest: of proposals for a context, say
	Failed Set    // union: who is known to have failed, by the members or, at last, by the leader
	Acked  Set    // intersection: whose failure the application has acknowledged
}

// Unacknowledged are those whose failure somebody knows and not everybody has
// acknowledged. While there are any, MPI_Comm_agree returns MPI_ERR_PROC_FAILED,
// on all members alike.
func (v Value) Unacknowledged() Set { return v.Failed.Minus(v.Acked) }

// plus is the sum of v and w.
func (v Value) plus(w Value) Value {
	return Value{
		Flags:  v.Flags & w.Flags,
		Max:    max(v.Max, w.Max),
		Failed: v.Failed.Union(w.Failed),
		Acked:  v.Acked.Intersect(w.Acked),
	}
}
