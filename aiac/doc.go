// Package aiac runs one iterative solver synchronously or asynchronously over the ranks of a
// communicator (AIAC: asynchronous iterations, asynchronous communication).
//
// A [Problem] is cut into tasks, one for each rank. A [Task] has a block of the unknowns, and uses
// values of other tasks. Run has it iterate:
//
//   - [Sync]: in iteration k each task waits for the values of iteration k-1 of all tasks that it needs. The
//     result, and the number of iterations, are those of the sequential block Jacobi method.
//   - [Async]: a task takes the newest values that have come, iterates, and puts its own into slots
//     ([mpilib.PutTo]). It never waits for a task that computes or a path that is slow. That converges if
//     the spectral radius of |M^-1 N| is below 1, with M the blocks and N the rest of the matrix
//     (Chazan and Miranker, 1969).
//
// In both modes the residual of the result, all tasks' parts of one vector, is at most the tolerance.
// Package aiac/internal/termination decides when that is so in asynchronous runs.
//
// A task knows neither ranks nor messages. The state is in the tasks and in the call of Run.
package aiac
