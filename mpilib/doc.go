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
// through an overlay.Connector; links are made at the first message to a rank.
// Messages move while the program computes; a process that computes notices
// within a millisecond what its peers want, and who waits for a message reads it
// himself, without the help of another goroutine.
//
// Everything returns errors and nothing panics on what a peer sends. Every
// call that waits takes a context and ends with it. All functions may be
// called from any goroutine. Elements travel as they lie in memory: every
// process must run on a little-endian machine, which Init checks.
//
// The package knows types, communicators and their topologies, and how they are made. What
// carries out its calls is in packages below internal, each of which knows of a
// communicator what it needs and no more. Package internal/engine, on which they stand,
// matches messages with receives and moves them as bytes; internal/join opens what reaches
// the other ranks. None knows how that does it (package link and its connector), how a
// collective is laid out (package collectives), and what daemons exist. State lives in the
// World, in memory.
//
// # Memory
//
// A message below 16 KiB is copied when it is sent, and its send is complete.
// What arrives before its receive is kept, up to a limit for each peer
// (WithUnexpectedLimit: 16 MiB, which grow to 64 where a long path holds more).
// Beyond it, and where messages are large, they are offered: a send is complete
// when its receive has them, as the standard allows (MPI-4.1, section 3.4), so a
// program that needs its sends to be complete before they are received uses
// Bsend, or Isend. Large messages are written
// straight from the caller's buffer and read straight into the receiver's; if
// their receive is posted they take no round trip more than small ones.
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
// Accept and Connect join two jobs that were started apart, at a port of OpenPort, whose
// text travels as the program likes, or by a name (PublishName, LookupName). What
// they return belongs to a world of its own, of both sides' processes.
//
// Comm.Topology says where the ranks run and which way their messages go.
//
// Collective calls of an intercommunicator move data from each group to the other
// (MPI-4.1, section 6.2.3); the root of one gives Root, the others of its group
// ProcNull.
//
// # Collective calls
//
// Each waits (Bcast), goes on by itself as a Request (Ibcast), or is prepared as a
// Persistent (BcastInit). Package collectives carries them out; by which algorithm depends
// on where the ranks are and what links have measured, on which they agree. EnvColl and
// HintColl force algorithms, and EnvCollExplain has choices told.
//
// # Datatypes
//
// The package's functions move slices, which travel as they lie in memory. What lies
// in pieces is described by a Datatype, made by the functions that begin with Type,
// and moved as a Part of a slice by the methods of Comm that have the functions'
// names:
//
//	column, err := mpilib.TypeVector(rows, 1, columns, number) // number from TypeOf[float64]
//	err = column.Commit()
//	...
//	err = comm.Send(ctx, mpilib.PartAs(matrix[2:], 1, column), 1, 7)
//
// A message whose type leaves no gaps is sent from memory and received there; others
// are packed and unpacked once. Counts have 64 bits.
//
// PsendInit and PrecvInit make transfers whose parts are sent when they are ready and
// seen when they have arrived, one by one (MPI-4.1, chapter 4).
//
// # Errors
//
// Errors are returned. SetErrorHandler shows a communicator's errors to the
// program before, and ErrorsAreFatal has it end as MPI programs do. The debug mode
// (EnvDebug) finds what no single call can see: leaks, ranks that are at odds, and
// deadlocks.
//
// # Failures
//
// When a process dies, every call on every other that needs it returns an
// ErrProcFailed, which says who (ProcFailedError): transfers with it, receives from
// AnySource of a communicator that it is in, and collective calls of one. Others go on
// as if nothing had happened. How soon: at once on its node; for a process of
// another node or site, some round trips after its helper saw it die, within 2 s;
// where nobody ever had a link with it, half a second later, and with ISTHMUS_DIR 2 s
// after that. A process that died before it could be dialled at all is missed for as long as
// WithConnectTimeout says, and one whose whole node is lost for as long as links wait for theirs, a minute.
// The death of a connection is none of a process: links get another.
//
// Who learns of a death tells all it has links with. So nobody who waits for somebody that
// waits for the dead one waits in vain, but one who waits for a process that
// has turned to something else does, until that calls Revoke. A program that is to survive does
// what ULFM, the MPI forum's proposal, has it do:
//
//	err := step(ctx, comm)
//	if err != nil {
//		comm.Revoke() // whoever waits for this process learns that it is in vain
//	}
//	all, err := comm.Agree(ctx, flag(err == nil)) // the same on all ranks, come what may
//	if err != nil || all == 0 {
//		comm, err = comm.Shrink(ctx) // those that are left
//	}
//
// A process that is taken for failed although it lives, since no link to it could be had, is kept
// out for good: it finds all others failed.
package mpilib
