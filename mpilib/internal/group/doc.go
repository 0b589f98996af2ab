// Package group is the algebra of MPI groups: ordered sets of processes
// (MPI-4.1 section 7.3) and the splitting of one group into several (7.4.2).
//
// A process is named by its rank in the world; a group gives it a rank of its
// own. Groups are immutable and may be shared between goroutines. A group is
// kept as runs of equal step, so that all of a world, a range, every fourth
// rank or a reversed order costs a few words whatever its size, and memory
// grows with the irregularity alone. Finding a member by either rank takes
// O(log runs).
//
// The package knows numbers. It refuses to know processes, communicators,
// messages and who calls it: everyone who gives the same arguments gets the
// same group, and that is what makes groups the same on all processes. It has
// no state.
package group
