// Package group is the algebra of MPI groups: ordered sets of processes (MPI-4.1 section 7.3) and
// the splitting of one group into several (7.4.2).
//
// A process is identified by its rank in the world; a group gives it a rank within the group.
// Groups are immutable and may be shared between goroutines. A group is kept as runs of equal step,
// so that all of a world, a range, every fourth rank or a reversed order costs a few words whatever
// its size, and memory grows only with irregularity. Finding a member by either rank takes O(log
// runs).
//
// The package knows only numbers. It does not know processes, communicators, messages or its
// caller: the same arguments give the same group, which makes groups the same on all processes. It
// has no state.
package group
