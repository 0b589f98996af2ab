package aiac

// A Problem is a system that is solved in blocks. Its methods are called on every rank and must return
// the same on all of them.
type Problem interface {
	// Tasks returns the number of tasks, which is the number of ranks.
	Tasks() int

	// Values returns how many numbers of a task another one uses; 0: none, it does not need that task. What a task needs
	// of itself is its state, of one number at least: the block, and whatever else a later Step depends on, but not
	// the values of others.
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

	// Residual returns the residual of the block's rows, with the block and the values as they are: the
	// greatest absolute value.
	Residual() float64

	// Give copies what a task needs of this one into v: the values that another one uses, or its own state.
	Give(to int, v []float64)

	// Take takes what this task needs of a task: the values of another one, or a state of its own that replaces the one it has.
	// The state was given here or in another process. Until a Take it has what New has put there.
	Take(from int, v []float64)
}
