// Package spin makes a stream socket quick to read: a read that finds nothing
// polls for a short while before it sleeps, for a sleeper's wake-up takes
// several times as long as a small message takes to come. It offers vectored
// reads and writes as well, and none of its calls allocates.
//
// # When a read spins
//
// After every empty poll the thread offers its CPU to others (sched_yield), so
// that a peer which shares the CPU can answer. What is burnt in vain is bounded
// in three ways:
//
//   - One wait spins for no longer than its budget, 200 us unless told otherwise.
//     The budget is of time that passed, so where others want the CPU, and keep
//     it after a yield, it is used up at once.
//   - Each connection keeps an account. A wait that ended with data within its
//     budget pays two budgets in, one that did not pays the time it took; the
//     account holds 16 budgets at most. Once it is empty, only every 16th wait
//     spins, until one of those pays. So spinning goes on while at least one wait in three
//     is worth it, and a connection where it never is spends a sixteenth
//     of a budget per wait, however it is used.
//   - At any time, one processor fewer than the runtime has (GOMAXPROCS) may
//     spin in the whole process: there is always one left for other goroutines.
//     With a single one a wait yields at most 4 times, which suits a peer on the
//     same CPU and costs about a microsecond otherwise. A read there that has
//     reason to foresee a wait yields before it looks.
//
// The package knows nothing of what the bytes mean. Its state is in the
// connection, but for the count of waits that spin now. Where the system is
// not Linux, a connection reads and writes as the one below it does.
package spin
