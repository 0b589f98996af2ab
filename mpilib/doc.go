// Package mpilib passes messages between the processes of a job, with MPI's terms and semantics:
// communicators, point-to-point messages that match by source and tag and never overtake, and
// collectives.
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
// A program started without a launcher is a world of one; `isthmus run`, PMI and Slurm create
// larger ones through the environment (Init). Ranks find each other through an overlay.Connector;
// a link is set up at the first message to a rank. Messages make progress while the program
// computes; a computing process handles its peers' requests within a millisecond, and a goroutine
// that waits for a message reads it itself, without another goroutine.
//
// All functions return errors, and no input from a peer causes a panic. Every blocking call takes
// a context and ends with it. All functions may be called from any goroutine. Elements are
// transferred as they lie in memory: every process must run on a little-endian machine, which Init
// checks.
//
// The package implements types, communicators and their topologies. Its calls are carried out by
// packages below internal, each of which knows only what it needs of a communicator. Package
// internal/engine, their basis, matches messages with receives and transfers them as bytes;
// internal/join opens the connector to the other ranks. None knows how the connector works
// (package link), how a collective is scheduled (package collectives), or which daemons exist.
// State lives in the World, in memory.
//
// # Memory
//
// A message below 16 KiB is copied when it is sent, and its send is complete. A message that
// arrives before its receive is posted is buffered, up to a limit for each peer
// (WithUnexpectedLimit: 16 MiB, which grows to 64 if a long path holds more). Beyond the limit,
// and for large messages, rendezvous is used: a send is complete when its receive has the message,
// as the standard allows (MPI-4.1, section 3.4), so a program that needs its sends to be complete
// before they are received uses Bsend, or Isend. Large messages are written straight from the
// caller's buffer and read straight into the receiver's; if their receive is posted they need no
// more round trips than small ones.
//
// # Communicators
//
// Communicators are created from communicators (Dup, Split, SplitType, Create, CreateGroup,
// IntercommCreate, Merge), with topologies (CartCreate, GraphCreate, DistGraphCreate), or from
// process sets without the world's (NewSession). Ranks that create one check in the same message
// exchange that all of them make the same call, with equal arguments: on a mismatch, all ranks get
// an error that names the ranks that differ, and none waits. Different goroutines may create
// communicators from different ones concurrently.
//
// Accept and Connect join two separately started jobs, at a port of OpenPort, whose text the
// program passes on by any means, or by a name (PublishName, LookupName). Their result belongs to
// a separate world, of both sides' processes.
//
// Comm.Topology returns where the ranks run and which paths their messages take.
//
// Collective calls of an intercommunicator move data from each group to the other (MPI-4.1,
// section 6.2.3); the root of one gives Root, the others of its group ProcNull.
//
// # Collective calls
//
// Each has a blocking variant (Bcast), a nonblocking one that returns a Request (Ibcast), and a
// persistent one (BcastInit). Package collectives carries them out; the choice of the algorithm
// depends on the locations of the ranks and on the measurements of links, on which the ranks
// agree. EnvColl and HintColl force algorithms, and EnvCollExplain prints the choices.
//
// # Datatypes
//
// The package's functions transfer slices as they lie in memory. Noncontiguous data are described
// by a Datatype, built by the functions that begin with Type, and transferred as a Part of a slice
// by the methods of Comm with the functions' names:
//
//	column, err := mpilib.TypeVector(rows, 1, columns, number) // number from TypeOf[float64]
//	err = column.Commit()
//	...
//	err = comm.Send(ctx, mpilib.PartAs(matrix[2:], 1, column), 1, 7)
//
// A message whose type leaves no gaps is sent from memory and received there; others are packed
// and unpacked once. Counts have 64 bits.
//
// PsendInit and PrecvInit prepare transfers whose parts are sent as they become ready and are
// available as they arrive, one by one (MPI-4.1, chapter 4).
//
// # Errors
//
// Errors are returned. SetErrorHandler passes a communicator's errors to the program first, and
// ErrorsAreFatal ends the program as MPI does by default. The debug mode (EnvDebug) finds what no
// single call can detect: leaks, mismatched collective calls, and deadlocks.
//
// # Failures
//
// When a process fails, every call of another process that needs it returns an ErrProcFailed,
// which names the process (ProcFailedError): transfers with it, receives from AnySource of a
// communicator that it is in, and collective calls of one. Other calls are unaffected. The delay:
// none on its node; for a process of another node or site, a few round trips after its helper
// detected the failure, within 2 s; if no process ever had a link with it, half a second more, and
// with ISTHMUS_DIR another 2 s. The failure of a process that could never be dialled is detected
// after WithConnectTimeout, and the loss of a whole node after the time that links wait for their
// peers, a minute. The failure of a connection is not the failure of a process: links get another
// connection.
//
// A process that learns of a failure notifies all peers with which it has links. So a process that
// waits for another that waits for the failed one gets an error, but one that waits for a process
// that has moved on to something else does not, until that process calls Revoke. A fault-tolerant
// program follows ULFM, the proposal to the MPI forum:
//
//	err := step(ctx, comm)
//	if err != nil {
//		comm.Revoke() // processes that wait for this one get an error
//	}
//	all, err := comm.Agree(ctx, flag(err == nil)) // the same on all ranks, regardless of failures
//	if err != nil || all == 0 {
//		comm, err = comm.Shrink(ctx) // the remaining processes
//	}
//
// A process that is considered failed although it is alive, because no link to it could be set up,
// is excluded permanently: for it, all others have failed.
package mpilib
