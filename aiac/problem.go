package aiac

// A Problem is a system that is solved in blocks. Its methods are called on every rank and must return
// the same on all of them.
type Problem interface {
	// Tasks returns the number of tasks, which is the number of ranks.
	Tasks() int

	// Needs returns the tasks whose values a task uses, in ascending order and without itself.
	Needs(task int) []int

	// Values returns how many numbers of its block a task gives to another one that needs them.
	Values(from, to int) int

	// New returns a task at the start of the iteration. Run makes two of the task of its rank: the
	// second one holds copies of blocks. They may share what never changes.
	New(task int) (Task, error)
}

// A Task computes one block. Run calls its methods from one goroutine at a time. Memory that is passed to
// them belongs to the caller again when they return.
type Task interface {
	// Step is one iteration: it computes the block anew, with the values taken last.
	Step() error

	// Give copies the values of the block that another task uses into v.
	Give(to int, v []float64)

	// Take takes the values of another task. Until then it has those of the start.
	Take(from int, v []float64)

	// Residual returns the residual of the block's rows, with the block and the values as they are: the
	// greatest absolute value.
	Residual() float64

	// Save appends the block to b, and whatever else of the state a later Step depends on, but not the values of others.
	Save(b []byte) []byte

	// Load replaces the block by one that a Save of this task has written, here or in another process.
	Load(b []byte) error
}
