package agree

// A Value is what members agree on. Each member contributes one; the value agreed on is their sum,
// field by field as described below.
type Value struct {
	Flags  uint64 // bitwise and, as in MPI_Comm_agree
	Max    uint64 // maximum: of proposals for a context, for example
	Failed Set    // union: the failures known to the members or, finally, to the leader
	Acked  Set    // intersection: the failures that the application has acknowledged
}

// Unacknowledged returns the failures that some member knows and not every member has acknowledged.
// While there are any, MPI_Comm_agree returns MPI_ERR_PROC_FAILED on all members alike.
func (v Value) Unacknowledged() Set { return v.Failed.Minus(v.Acked) }

// plus returns the sum of v and w.
func (v Value) plus(w Value) Value {
	return Value{
		Flags:  v.Flags & w.Flags,
		Max:    max(v.Max, w.Max),
		Failed: v.Failed.Union(w.Failed),
		Acked:  v.Acked.Intersect(w.Acked),
	}
}
