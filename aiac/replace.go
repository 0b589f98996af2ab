package aiac

import (
	"context"
	"errors"
	"fmt"

	"github.com/isthmus-grid/isthmus/aiac/internal/register"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// Tags of runs whose lost tasks are replaced.
const (
	leaveTag = 3 // of the messages by which the tasks leave together
	stateTag = 4 // of those of package checkpoint
)

// RunReplaceable is Run with Options.Mode Async in a job whose lost processes are replaced (mpilib.Replacements). Each of
// the job's processes calls it once, also one that replaces another: it runs the task of that one's rank. While a task has no process, the others iterate with the last values that they have of it, and no
// decision is made. They do not count up iterations meanwhile: once what lives has converged beside these values, nothing new
// comes, and a task that holds its tolerance and hears nothing new waits.
//
// With Options.Checkpoint a process that replaces another one starts from the newest state of its task that a live task holds. If
// none does, it starts from Problem.New, as it does without Checkpoint, and Checkpoints.Missing says why. Options.Restore and
// Config.Decide must be nil.
//
// An error of RunReplaceable ends the part of this process only. A task that is lost after the decision and before all know of
// it fails with ErrResultLost: its block of the result was in the lost process.
func RunReplaceable(ctx context.Context, world *mpilib.World, p Problem, o Options) (*Result, error) {
	o.Hold, o.MaxIterations = orDefault(o.Hold, DefaultHold), orDefault(o.MaxIterations, defaultMaxIterations)
	spare := world.Replacements()
	if spare == nil || o.Mode != Async {
		return nil, fmt.Errorf("aiac: %w: lost tasks are replaced in asynchronous runs of jobs with spare process numbers (isthmus run --replace)", ErrProblem)
	}
	if o.Restore != nil || o.Checkpoint != nil && o.Checkpoint.Decide != nil {
		return nil, fmt.Errorf("aiac: %w: a run whose lost tasks are replaced restores their states itself; leave Restore and Decide out", ErrProblem)
	}
	if err := check(spare.Ranks, p, o); err != nil {
		return nil, fmt.Errorf("aiac: %w", err)
	}
	r, err := newRun(spare.Comm, spare.Rank(), p, o)
	defer r.closeSaving()
	if err == nil && o.Checkpoint != nil {
		err = r.openReplaceable(ctx, world)
	}
	if err == nil {
		err = r.async(ctx, newProcesses(spare))
	}
	if err != nil {
		return nil, fmt.Errorf("aiac: task %d, iteration %d: %w", r.task, r.iterations(), err)
	}
	return &r.result, nil
}

// ErrResultLost says that the process of a task was lost with the task's block of the result.
var ErrResultLost = errors.New("the block of the result is lost with the process that had it")

// processes is what a run knows of who runs which task: all that it is told, merged by the maximum. In a run without
// replacements task i is rank i for good.
type processes struct {
	replaceable bool
	view        register.Register
}

// fixed returns the processes of a run without replacements.
func fixed(tasks int) *processes { return &processes{view: register.New(tasks)} }

// newProcesses returns what a process knows at its start.
func newProcesses(r *mpilib.Replacements) *processes {
	view := register.New(r.Ranks)
	for i, task := range r.Ranked {
		view = view.Replaced(task, uint32(r.Ranks+i))
	}
	return &processes{true, view}
}

// of returns the rank of the process that runs a task.
func (p *processes) of(task int) int {
	number, _ := p.view.Process(task)
	return int(number)
}

// isLoss reports whether err is the loss of a process that will be replaced.
func (p *processes) isLoss(err error) bool {
	return p.replaceable && errors.Is(err, mpilib.ErrProcFailed)
}

// lose enters the failures that the communicator knows into the register.
func (a *asyncRun) lose(ctx context.Context) error {
	failed, err := a.comm.GetFailed()
	if err != nil {
		return err
	}
	view := a.end.View()
	for i := range failed.Size() {
		number := uint32(failed.WorldRank(i))
		if task, ok := view.Task(number); ok {
			view = view.Lost(task, number)
		}
	}
	if view.Equal(a.end.View()) {
		return nil
	}
	out, err := a.end.Update(view)
	return errors.Join(err, a.carryOut(ctx, out, -1, nil), a.follow())
}

// acknowledge makes receives from any process possible again after losses.
func (a *asyncRun) acknowledge() error {
	failed, err := a.comm.GetFailed()
	if err == nil {
		_, err = a.comm.AckFailed(failed.Size())
	}
	if err == nil && a.saving != nil {
		err = a.saving.exchange.NoteFailed()
	}
	return err
}

// meetProcesses has all tasks wait for each other, by the processes that they have at the decision. A later loss of
// one of these is an error.
func (a *asyncRun) meetProcesses(ctx context.Context) error {
	root := a.meetAt[0]
	if a.task != 0 {
		if err := mpilib.Send(ctx, a.comm, []byte{1}, root, leaveTag); err != nil {
			return err
		}
		_, err := mpilib.Recv(ctx, a.comm, []byte{0}, root, leaveTag)
		return err
	}
	for _, at := range a.meetAt[1:] {
		if _, err := mpilib.Recv(ctx, a.comm, []byte{0}, at, leaveTag); err != nil {
			return err
		}
	}
	for _, at := range a.meetAt[1:] {
		if err := mpilib.Send(ctx, a.comm, []byte{1}, at, leaveTag); err != nil {
			return err
		}
	}
	return nil
}

// follow opens the slots of tasks that have another process than before, by what the register says now.
func (a *asyncRun) follow() error {
	view := a.end.View()
	if view.Equal(a.who.view) {
		return nil
	}
	before := *a.who
	a.who.view, a.quiet = view, 0 // isLoss, for receive, reads neither
	if a.saving != nil {
		for task := range a.problem.Tasks() {
			number, isLost := view.Process(task)
			a.saving.exchange.Learn(task, int(number), isLost)
		}
	}
	for i, n := range a.needs {
		if before.of(n.task) == a.who.of(n.task) {
			continue
		}
		if a.in[i] != nil {
			a.in[i].Close()
		}
		s, err := a.getFrom(n)
		if err != nil && !a.who.isLoss(err) {
			return err
		}
		if err == nil {
			a.in[i], a.numbers[i] = s, 0
		}
	}
	for i, n := range a.feeds {
		if before.of(n.task) == a.who.of(n.task) {
			continue
		}
		s, err := a.putTo(n)
		if err != nil && !a.who.isLoss(err) {
			return err
		}
		if err == nil {
			a.out[i] = s
		}
	}
	return a.put()
}
