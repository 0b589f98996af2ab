// Package p2p measures messages between ranks, as programs send them with mpilib, in turn with the
// same messages of Open MPI and MPICH; or those of programs in C, with our library for them.
//
// What one command measures is a suite (suites.go): messages, of Go, and programs, of C.
// A scenario says where the ranks are: at two hosts that only a wire joins, at one, or all on one
// processor of it. Figures are what to measure there: half a round trip, bandwidth and message rate
// with 64 messages in flight, a ring and a barrier (plan.go). Each implementation is a job of its
// own that does the same on the same orders: ours in Go are processes of this program (rank.go), the
// others' a program in C (c/p2p.c) that is compiled for the run, with the compiler wrappers of
// Debian's packages or with isthmus cc, and started by their launchers. Ours at two hosts have
// stand-ins for helpers, which hand them connections over the wire.
//
// All implementations of a figure run one after the other, then all again: the results are medians.
// In the two-host scenario the wire's counters must show the payload, so that no implementation is
// measured over shared memory by mistake. The package uses only mpilib's public calls, and starts
// all others as programs. It keeps no state.
package p2p
