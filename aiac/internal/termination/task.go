package termination

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/isthmus-grid/isthmus/aiac/internal/register"
)

// ErrExpelled is returned once others hold this process for lost: its task has another one, or will
// have, and it must not go on.
var ErrExpelled = errors.New("termination: the others hold this process for lost; its task has another one")

// Norm says how the residuals of parts of a vector combine.
type Norm uint8

// The norms.
const (
	Max       Norm = iota // the greatest absolute value of a row; a part is its own
	Euclidean             // the root of the sum of squares; a part is its sum of squares
)

// combine returns the residual of two parts.
func (n Norm) combine(a, b float64) float64 {
	if n == Euclidean {
		return a + b
	}
	return max(a, b)
}

// whole returns the norm of the vector of which the parts combine to residual.
func (n Norm) whole(residual float64) float64 {
	if n == Euclidean {
		return math.Sqrt(residual)
	}
	return residual
}

// Config is what a task is. The slices belong to the caller and must not change.
type Config struct {
	Task      int
	Tree      Tree
	Needs     []int   // the tasks whose blocks this one uses, without itself
	Feeds     []int   // the tasks that use this one's block, without itself
	Hold      int     // k: iterations for which the tolerance must hold, at least 1
	Tolerance float64 // the greatest residual of a result; task 0 decides by its own
	Norm      Norm
}

// A Task is one task's part in the decision, in one process.
//
//	iterating --Freeze, Block, Part--> frozen --Done--> decided
//	    ^                                 |                ^
//	    +--------- Resume, a new view ----+                |
//	    +------------------------ Done --------------------+
type Task struct {
	config  Config
	process uint32
	view    register.Register
	decided Result // Wave.Round 0: not yet

	streak int    // iterations in a row for which the tolerance held
	fresh  []bool // by Needs: whether a value has come since the streak began

	// The wave that is under way if frozen, else the one that may come next; all begins anew with
	// each view.
	round    uint32
	frozen   bool
	ready    []bool // by child
	reported bool   // whether the parent was last told that the subtree is ready

	blocks   []bool // by Needs: whether the copy has come
	parts    []bool // by child
	measured bool
	answered bool // whether the part has been sent
	residual float64

	copied Wave // of which the owner has a copy; Round 0: of none
	out    Out
}

// Out is what the owner has to do, in this order. It belongs to the caller.
type Out struct {
	// Store says that what came with the message, which is a Block, is to be kept until Measure.
	Store bool

	// Freeze says that the block, as it is now, is to be copied: in place of any earlier copy. The
	// copy accompanies the messages of kind Block.
	Freeze bool

	// Send has the messages to send.
	Send []Envelope

	// Measure, if its Round is not 0, says that all copies are here which the residual of this task's
	// rows depends on. The owner computes it from them and calls [Task.Measured].
	Measure Wave

	// Result, if not nil, is the end: the owner stops iterating. Receive answers tasks that have not
	// heard of it yet, so the owner calls it until all have.
	Result *Result
}

// A Result is a decision.
type Result struct {
	Wave     Wave
	Residual float64 // of the result, at most the tolerance
	HasCopy  bool    // whether the owner's latest copy is of this wave; else the copy that an earlier process stored is the block
}

// New returns the part of a task in the process that runs it by the register, and what to send. It
// panics if the configuration is inconsistent.
func New(c Config, r register.Register) (*Task, Out) {
	process, isLost := r.Process(c.Task)
	if r.Tasks() != c.Tree.Tasks() || c.Hold < 1 || isLost || slices.Contains(c.Needs, c.Task) || slices.Contains(c.Feeds, c.Task) {
		panic(fmt.Sprintf("termination: task %d of %d (%d in the register, lost: %v) that holds for %d iterations", c.Task, c.Tree.Tasks(), r.Tasks(), isLost, c.Hold))
	}
	t := &Task{config: c, process: process, view: r, fresh: make([]bool, len(c.Needs)), round: 1}
	t.forget()
	if t.process >= uint32(r.Tasks()) { // it replaces another one: others may not have heard of it
		for task := range r.Tasks() {
			t.send(task, Message{Kind: News})
		}
	}
	return t, t.take()
}

// View returns what the task knows of the processes of all tasks.
func (t *Task) View() register.Register { return t.view }

// Heard reports that the next iteration uses a newer value of a task of Needs.
func (t *Task) Heard(from int) {
	if i := slices.Index(t.config.Needs, from); i >= 0 {
		t.fresh[i] = true
	}
}

// Iterated reports the end of an iteration, and whether the task's tolerance held in it.
func (t *Task) Iterated(holds bool) Out {
	switch {
	case !holds:
		t.streak = 0
	case t.streak == 0:
		t.streak = 1
		clear(t.fresh)
	default:
		t.streak++
	}
	t.progress()
	return t.take()
}

// Update reports losses and replacements. It returns [ErrExpelled] if this process is among the
// lost.
func (t *Task) Update(r register.Register) (Out, error) {
	if err := t.learn(r); err != nil {
		return Out{}, err
	}
	t.progress()
	return t.take(), nil
}

// Measured reports this task's part of the residual, by the wave of Out.Measure. It is ignored if that
// wave is over.
func (t *Task) Measured(w Wave, part float64) Out {
	if t.frozen && !t.measured && w.Equal(t.wave()) && !slices.Contains(t.blocks, false) {
		t.measured = true
		t.residual = t.config.Norm.combine(t.residual, part)
	}
	t.progress()
	return t.take()
}

// Receive takes a message of another process. It ignores those of lost processes, and returns an error for one
// that the protocol does not allow: of such a message it takes the view only. What it returns is to
// be done also beside an error.
func (t *Task) Receive(process uint32, m Message) (Out, error) {
	from, ok := m.View.Task(process)
	if !ok || from == t.config.Task || m.View.Tasks() != t.view.Tasks() || m.Kind == Done && m.Decided.Tasks() != t.view.Tasks() {
		return Out{}, fmt.Errorf("termination: %v from process %d to task %d: no other process with a task", m.Kind, process, t.config.Task)
	}
	if err := t.learn(m.View); err != nil {
		return Out{}, err
	}
	if now, isLost := t.view.Process(from); now != process || isLost {
		return t.take(), nil
	}
	switch {
	case t.isDecided():
		if m.Kind != Done {
			t.send(from, t.done())
		}
		return t.take(), nil
	case m.Kind == Done:
		t.decide(Wave{m.Decided, m.Round}, m.Residual)
		return t.take(), nil
	case !m.View.Equal(t.view): // it does not know all that this task does
		t.send(from, Message{Kind: News})
		return t.take(), nil
	}
	if err := t.handle(from, m); err != nil {
		return t.take(), fmt.Errorf("termination: %v of wave %d from task %d to task %d, in wave %d: %w", m.Kind, m.Round, from, t.config.Task, t.round, err)
	}
	t.progress()
	return t.take(), nil
}

// The reasons for which a message is refused.
var (
	errStranger = errors.New("it is not from a task that sends it")
	errRound    = errors.New("it is of another wave than can be under way")
	errAgain    = errors.New("it came before")
	errKind     = errors.New("there is no such kind")
)

// handle takes a message of the same view.
func (t *Task) handle(from int, m Message) error {
	switch child := slices.Index(t.config.Tree.Children(t.config.Task), from); m.Kind {
	case News:
		return nil
	case Ready:
		return t.handleReady(child, m)
	case Part:
		return t.handlePart(child, m)
	case Block:
		return t.handleBlock(slices.Index(t.config.Needs, from), m)
	case Freeze, Resume:
		return t.handleParent(from, m)
	}
	return errKind
}

func (t *Task) handleReady(child int, m Message) error {
	switch {
	case child < 0:
		return errStranger
	case m.Round > t.round:
		return errRound
	case m.Round == t.round && !t.frozen:
		t.ready[child] = m.Ready
	}
	return nil // else the child had not heard of the wave when it sent it
}

func (t *Task) handlePart(child int, m Message) error {
	switch {
	case child < 0:
		return errStranger
	case m.Round != t.round:
		return errRound
	case t.parts[child]:
		return errAgain
	}
	t.freeze()
	t.parts[child] = true
	t.residual = t.config.Norm.combine(t.residual, m.Residual)
	return nil
}

func (t *Task) handleBlock(need int, m Message) error {
	switch {
	case need < 0:
		return errStranger
	case m.Round != t.round:
		return errRound
	case t.blocks[need]:
		return errAgain
	}
	t.out.Store = true
	t.freeze()
	t.blocks[need] = true
	t.measure()
	return nil
}

func (t *Task) handleParent(from int, m Message) error {
	switch {
	case from != t.config.Tree.Parent(t.config.Task):
		return errStranger
	case m.Round != t.round || m.Kind == Resume && !t.answered:
		return errRound
	case m.Kind == Freeze:
		t.freeze()
	default:
		t.resume()
	}
	return nil
}

// learn merges a register into the view. If that changes it, the wave is over.
func (t *Task) learn(r register.Register) error {
	merged := t.view.Merge(r)
	if now, isLost := merged.Process(t.config.Task); now != t.process || isLost {
		return ErrExpelled
	}
	if merged.Equal(t.view) {
		return nil
	}
	t.view = merged
	if t.isDecided() {
		return nil
	}
	t.round = 1
	t.forget()
	t.send(t.config.Tree.Parent(t.config.Task), Message{Kind: News})
	t.sendChildren(Message{Kind: News})
	return nil
}

// forget resets all that is of one wave, and readiness.
func (t *Task) forget() {
	children := len(t.config.Tree.Children(t.config.Task))
	t.streak = 0
	t.frozen, t.ready, t.reported = false, make([]bool, children), false
	t.blocks, t.parts = make([]bool, len(t.config.Needs)), make([]bool, children)
	t.measured, t.answered, t.residual = false, false, 0
}

// isReady reports whether this task is ready, whatever its children are.
func (t *Task) isReady() bool { return t.streak >= t.config.Hold && !slices.Contains(t.fresh, false) }

// progress does what has become possible.
func (t *Task) progress() {
	if t.isDecided() || !t.view.IsComplete() {
		return
	}
	if !t.frozen {
		t.report()
	}
	if t.frozen && t.measured && !t.answered && !slices.Contains(t.parts, false) {
		t.answer()
	}
}

// report tells the parent whether the subtree is ready, or begins a wave if it is the whole tree.
func (t *Task) report() {
	ready := t.isReady() && !slices.Contains(t.ready, false)
	switch {
	case t.isRoot() && ready:
		t.freeze()
	case !t.isRoot() && ready != t.reported:
		t.reported = ready
		t.send(t.config.Tree.Parent(t.config.Task), Message{Kind: Ready, Round: t.round, Ready: ready})
	}
}

// freeze enters the wave, if the task has not yet.
func (t *Task) freeze() {
	if t.frozen {
		return
	}
	t.frozen, t.copied = true, t.wave()
	t.out.Freeze = true
	t.sendChildren(Message{Kind: Freeze, Round: t.round})
	for _, task := range t.config.Feeds {
		t.send(task, Message{Kind: Block, Round: t.round})
	}
	t.measure()
}

// measure asks for the residual once all copies are here.
func (t *Task) measure() {
	if !slices.Contains(t.blocks, false) {
		t.out.Measure = t.wave()
	}
}

// answer passes on the residual of the subtree; the root judges it.
func (t *Task) answer() {
	t.answered = true
	if !t.isRoot() {
		t.send(t.config.Tree.Parent(t.config.Task), Message{Kind: Part, Round: t.round, Residual: t.residual})
		return
	}
	if r := t.config.Norm.whole(t.residual); r <= t.config.Tolerance {
		t.decide(t.wave(), r)
	} else {
		t.resume()
	}
}

// resume ends a wave whose residual was too large.
func (t *Task) resume() {
	t.sendChildren(Message{Kind: Resume, Round: t.round})
	t.round++
	t.forget()
}

// decide takes the decision and passes it on.
func (t *Task) decide(w Wave, residual float64) {
	t.decided = Result{w, residual, w.Equal(t.copied)}
	t.sendChildren(t.done())
	result := t.decided
	t.out.Result = &result
}

func (t *Task) done() Message {
	return Message{Kind: Done, Round: t.decided.Wave.Round, Residual: t.decided.Residual, Decided: t.decided.Wave.View}
}

func (t *Task) isDecided() bool { return t.decided.Wave.Round > 0 }
func (t *Task) isRoot() bool    { return t.config.Task == 0 }
func (t *Task) wave() Wave      { return Wave{t.view, t.round} }

func (t *Task) sendChildren(m Message) {
	for _, child := range t.config.Tree.Children(t.config.Task) {
		t.send(child, m)
	}
}

// send sends a message to another task, if it exists and has a process.
func (t *Task) send(task int, m Message) {
	if task < 0 || task == t.config.Task {
		return
	}
	process, isLost := t.view.Process(task)
	if isLost {
		return
	}
	m.View = t.view
	t.out.Send = append(t.out.Send, Envelope{process, m})
}

func (t *Task) take() Out {
	out := t.out
	t.out = Out{}
	return out
}
