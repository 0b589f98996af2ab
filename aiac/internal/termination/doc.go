// Package termination decides when an asynchronous iteration ends. No task can see that by itself: it
// may have converged to values that its neighbours have long replaced by others that are still
// on the way. So a server that stops all tasks once each of them says that it has converged, as in
// JaceP2P-V2, stops too early. Here the tasks measure the residual of one vector, and that vector
// is the result.
//
// A [Task] is one task's part. It knows no sockets, clocks, goroutines or data: its owner reports
// events, and it returns what to do and what to send. All state is in the Task and belongs to its
// caller, one call at a time.
//
// # Algorithm
//
// A task is ready when its tolerance has held for some iterations, and each neighbour has sent a
// newer value since the first of them. That is a reason to look, not to stop. Readiness goes up a
// [Tree], and is withdrawn when it ends:
//
//	Ready   up          all tasks of the subtree are ready, or no longer are
//	Freeze  down        the root has seen all ready: copy the block as it is
//	Block   sideways    the copy, to the tasks that use it
//	Part    up          the residual of the subtree's rows, of the copies only
//	Resume  down        it is too large; go on, and be ready anew
//	Done    down        it is small enough: the copies are the result
//	News    any         which process runs which task, as the sender knows it
//
// Tasks iterate all the time, also while a wave (Freeze to Resume) is under way. A task copies its
// block at the first message of a wave, be it Freeze or another task's Block or Part, so a wave
// takes about three times the longest path. Without losses a wave of n tasks costs 3(n-1) messages and
// one block for each dependency.
//
// # Losses
//
// Every message has the sender's [register.Register], its view. A wave is of one view, in which no
// task is without a process; a task that learns of a loss or a replacement forgets the wave, and
// wherever the two views differ a message counts only as news. So no wave mixes the blocks of two
// processes of one task, and a loss that any of the tasks has seen when it is asked cancels the
// wave.
//
// # Guarantees
//
//   - The residual of the result is at most the tolerance, in the arithmetic of the owners: it is what
//     they measured of these very blocks.
//   - All processes that are live at the end have the same result.
//   - If losses end, each lost process is replaced, and every task is ready again and again with a
//     frozen vector that is good enough, all processes decide.
//
// A process may be lost after it gave its part and before it could do anything with the result. Its
// replacement hears of the decision, and takes the block of that wave from wherever the lost one has
// stored it: an owner that wants results to outlive processes stores the copy before it calls
// [Task.Measured]. The decision is not uniform: one of which only processes know that are lost
// too is followed by another one.
//
// # Requirements
//
// Messages between two live processes arrive once and in order. The owner reports every loss
// and replacement, and none that did not happen. Whoever starts processes gives each a register
// with those that it started before.
package termination
