// Package spin makes reads of a stream socket fast: a read that finds nothing polls for a short
// while before it sleeps, because waking a sleeping thread takes several times as long as a small
// message takes to arrive. It also offers vectored reads and writes, and none of its calls
// allocates.
//
// # When a read spins
//
// After every empty poll the thread offers its CPU to others (sched_yield), so that a peer on the
// same CPU can answer. Useless spinning is bounded in three ways:
//
//   - One wait spins for no longer than its budget, 200 us by default. The budget is elapsed time,
//     so where others want the CPU, and keep it after a yield, it is used up at once.
//   - Each connection keeps an account. A wait that ended with data within its budget pays two
//     budgets in, one that did not is charged the time it took; the account holds at most 16
//     budgets. Once it is empty, only every 16th wait spins, until one of those succeeds. So
//     spinning continues while at least one wait in three is useful, and a connection where it
//     never is spends a sixteenth of a budget per wait, however it is used.
//   - At any time, one processor fewer than the runtime has (GOMAXPROCS) may spin in the whole
//     process: there is always one left for other goroutines. With a single one a wait also offers
//     it to these after every empty poll, and lets others, goroutines or processes, have at most 4
//     turns, which suits a peer on the same CPU; where nobody else wants the processor, as where
//     each process of a job is bound to one of its own, it spins for its budget. A read there that
//     predicts a wait yields before it polls.
//
// The package knows nothing of what the bytes mean. Its state is in the connection, except for the
// count of spinning waits. On systems other than Linux, a connection reads and writes as the one
// below it does.
package spin
