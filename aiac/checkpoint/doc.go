// Package checkpoint keeps the states of a job's tasks in the memory of other tasks, without a server and without
// coordination (uncoordinated distributed checkpoints, JaceP2P): when a process is lost, its task goes on elsewhere
// from the newest state that another one holds. It suits methods that converge from any mixture of states, as
// asynchronous iterations do: the states of two tasks need not be of one moment.
//
// A task saves to two holders in turn ([Holders]): one on another node of its site, and one at another site. How often
// is a matter of cost: a [Budget] holds what saving takes to a share of the time.
//
// A holder keeps the newest whole state of each task, and the one that is arriving beside it ([Store]). An [Exchange] does
// all this between the ranks of a communicator: Save hands a state over and does not wait, and Fetch asks all tasks that
// live and returns the newest state that is whole. What it decides is decided by a pure machine, without sockets or clocks.
//
// A state is known by its iteration and a hash over task, iteration and data, which each receiver computes anew. That
// finds what is damaged, mixed up or incomplete; it does not protect from a process of the job that invents states.
//
// # Processes that are replaced
//
// In a job whose lost processes are replaced (mpilib.Replacements), OpenReplaceable makes an Exchange that follows the tasks from process to
// process. It has a register of each task's newest process, and whether that is lost, which is merged by the maximum. What
// enters it:
//
//   - Each message names the task of its sender. So a new process is known to whoever gets its first message, also its Fetch, and is
//     answered at once. A message of a process that is not the newest of its task is dropped: that of a lost one cannot
//     mix with the states of the next.
//   - A failure that the communicator knows. It reports one to a receive from any source until somebody acknowledges it, so whoever
//     does tells all others who wait on the same communicator: NoteFailed, and the function given to OpenReplaceable.
//   - What the program knows otherwise (Learn).
//
// Any of these may come late or not at all: a loss is found by the next message to the lost process, and a new process greets all tasks. Its
// greeting (Hello) says where it runs, and is answered by one from whoever did not know it. Until then its place counts as unknown, which
// makes for other holders, but loses no state: Fetch asks all tasks.
//
// A process that replaces another one holds nothing. So a state that was on its way to the last one is given up, and the
// new one is the next to get a state of each task that it holds. Fetch waits for no task without a process, and for the others until
// they answer or fail. If all who had a whole state of the task are lost, it returns ErrNoState and says so.
//
// The package does not know what a state contains, who detects losses, or who starts processes.
package checkpoint
