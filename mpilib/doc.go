// Package mpilib passes messages between the processes of a job, in MPI's
// words and with MPI's semantics: communicators, point-to-point messages that
// match by source and tag and never overtake, and collectives.
//
//	w, err := mpilib.Init(ctx)
//	...
//	defer w.Finalize(ctx)
//	comm := w.Comm()
//	if comm.Rank() == 0 {
//		err = mpilib.Send(ctx, comm, []float64{1, 2, 3}, 1, 7)
//	} else {
//		status, err = mpilib.Recv(ctx, comm, buf, 0, mpilib.AnyTag)
//	}
//
// A program started by itself is a world of one; `isthmus run`, PMI and Slurm
// make larger ones through the environment (Init). Ranks find each other
// through an overlay.Connector; links are made at the first message to a rank
// and each has a goroutine for either direction, so that messages move while
// the program computes.
//
// Everything returns errors and nothing panics on what a peer sends. Every
// call that waits takes a context and ends with it. All functions may be
// called from any goroutine. Elements travel as they lie in memory: every
// process must run on a little-endian machine, which Init checks.
//
// The package knows matching, requests and communicators. It refuses to know
// how processes are reached (package link and its connector), how a collective
// is laid out (package collectives), and what daemons exist. State lives in
// the World in memory, guarded by one lock.
//
// # Memory
//
// A message that arrives before its receive is kept, up to a limit for each
// peer (WithUnexpectedLimit, 64 MiB). When a peer's limit is reached its link
// is not read any more, and the peer's sends wait: back-pressure. As long as a
// receive waits for that peer, reading goes on past the limit, since what it
// waits for may come next; at sixteen times the limit the link is given up
// with an error. Messages below 16 KiB are copied when they are sent, up to
// 1 MiB for each peer; larger ones are written straight from the caller's
// buffer and read straight into the receiver's when the receive was posted.
//
// # Communicators
//
// Communicators are made from communicators (Dup, Split, SplitType, Create,
// CreateGroup, IntercommCreate, Merge), with topologies (CartCreate, GraphCreate,
// DistGraphCreate), or from process sets without the world's (NewSession). Ranks
// that make one check in the same message exchange that all of them make the
// same, with equal arguments: whoever differs is named to everybody, and nobody
// waits. Different goroutines may make communicators from different ones at the
// same time.
//
// Errors are returned. SetErrorHandler shows a communicator's errors to the
// program before, and ErrorsAreFatal has it end as MPI programs do.
package mpilib
