package debug

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/mpilib/internal/comm"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
)

// This file finds ranks that are not in the same collective call. Each rank reports its call to the
// first one of the communicator, and waits for that rank's verdict when it first waits for a
// message of the call.

// Args are the arguments of a collective call that must be equal on all ranks, as far as the call
// has them.
type Args struct {
	Root  int    // + 1; 0: the call has none
	Count int    // + 1; 0: ranks may differ
	Elem  any    // a nil pointer to an element
	Op    string // its name, for a reduction
	Name  string // of the call, if the program's function has another

	Loose bool // this rank transfers Parts, whose counts and types imply nothing about other ranks
	Alone bool // a nonblocking call; ranks may differ in nothing else
}

// Rooted returns the arguments of a call with a root.
func Rooted[T any](root, count int) Args {
	return Args{Root: root + 1, Count: count + 1, Elem: (*T)(nil)}
}

// Counted returns those of a call without a root.
func Counted[T any](count int) Args { return Args{Count: count + 1, Elem: (*T)(nil)} }

// RootOnly returns those of a call with a root in which ranks may give different counts, and
// TypeOnly those of one without a root.
func RootOnly[T any](root int) Args { return Args{Root: root + 1, Elem: (*T)(nil)} }

// TypeOnly is described at RootOnly.
func TypeOnly[T any]() Args { return Args{Elem: (*T)(nil)} }

// Loose returns those of a call with a root that transfers Parts.
func Loose(root int) Args { return Args{Root: root + 1, Loose: true} }

// Detached returns those of a nonblocking call.
func (a Args) Detached() Args { a.Alone = true; return a }

// PendingCall is a pending collective call.
type PendingCall struct {
	w       *Watcher
	comm    *comm.Core
	key     callKey
	call    Callsite
	span    span // in the timeline
	alone   bool // nonblocking: while its messages wait for others, the program does not
	verdict *pendingVerdict
}

// pendingVerdict is the verdict on whether all ranks are in the same call.
type pendingVerdict struct {
	decided chan struct{} // closed when err is valid
	err     error         // nil: they are
}

// callKey identifies a call.
type callKey struct {
	Context uint32 `json:"context"` // of the communicator
	Call    int32  `json:"call"`
}

// entry is a rank's report of its call.
type entry struct {
	Key   callKey `json:"key"`
	Comm  string  `json:"comm"` // the communicator's name
	Size  int     `json:"size"` // and how many processes it has
	Rank  int     `json:"rank"` // in it
	What  string  `json:"what"` // "Bcast(root 0, 4 float64)"
	Call  string  `json:"call"` // "Bcast(root 0)": the part that must be equal even if one of them is loose
	Loose bool    `json:"loose,omitempty"`
	Line  string  `json:"line"`
	from  int     // world rank
}

// verdict is the verdict on a call; Fault is empty if all ranks agree.
type verdict struct {
	Key   callKey `json:"key"`
	Fault string  `json:"fault,omitempty"`
}

// checks is the Watcher's state about collective calls; its mu guards it.
type checks struct {
	open   map[callKey]*PendingCall // of this rank, without a verdict
	coming map[callKey][]entry      // at the first rank of a communicator: the ranks that have reported
}

// maxComing bounds the calls, over all communicators, that a rank compares at a time. Calls beyond
// it are not checked.
const maxComing = 4096

func (c *checks) init() {
	c.open, c.coming = map[callKey]*PendingCall{}, map[callKey][]entry{}
}

// Entered records that this rank begins a collective call.
func (w *Watcher) Entered(c *comm.Core, number int32, args []Args) *PendingCall {
	w.acts.Add(1)
	call := &PendingCall{w: w, comm: c, key: callKey{c.Context, number}, call: CurrentCallsite(), verdict: &pendingVerdict{decided: make(chan struct{})}}
	if len(args) > 0 {
		call.alone = args[0].Alone
		call.call.name = cmp.Or(args[0].Name, call.call.name)
	}
	if w.timeline != nil {
		w.timeline.entered(call)
	}
	if !w.enabled(Collectives) || c.Group.Size() == 1 {
		close(call.verdict.decided)
		return call
	}
	w.mu.Lock()
	w.checks.open[call.key] = call
	w.mu.Unlock()
	e := entry{Key: call.key, Comm: c.Name(), Size: c.Group.Size(), Rank: c.Rank, What: call.call.name, Call: call.call.name, Line: call.call.line}
	if len(args) > 0 {
		e.What += describeArgs(args[0])
		e.Call += describeArgs(Args{Root: args[0].Root})
		e.Loose = args[0].Loose
	}
	if err := w.send(c.Group.WorldRank(0), note{Kind: noteEntry, Entry: &e}); err != nil {
		w.decided(verdict{Key: call.key}) // comparing has stopped
	}
	return call
}

// EnteredAgain records that this rank restarts a call that the ranks have already compared.
func (w *Watcher) EnteredAgain(first *PendingCall) *PendingCall {
	w.acts.Add(1)
	again := &PendingCall{w: w, comm: first.comm, key: first.key, call: CurrentCallsite(), alone: true, verdict: first.verdict}
	if w.timeline != nil {
		w.timeline.entered(again)
	}
	return again
}

// describeArgs returns "(root 0, 4 float64, sum)".
func describeArgs(a Args) string {
	var words []string
	if a.Root > 0 {
		words = append(words, fmt.Sprintf("root %d", a.Root-1))
	}
	if elem := elemName(a.Elem); a.Count > 0 {
		words = append(words, fmt.Sprintf("%d %s", a.Count-1, elem))
	} else if elem != "" {
		words = append(words, elem)
	}
	if a.Op != "" {
		words = append(words, a.Op)
	}
	if len(words) == 0 {
		return ""
	}
	return "(" + strings.Join(words, ", ") + ")"
}

// elemName names the type that a nil pointer points to: types with the same memory layout and
// meaning have one name.
func elemName(pointer any) string {
	if pointer == nil {
		return ""
	}
	t := reflect.TypeOf(pointer).Elem()
	if t.Kind() == reflect.Struct || t.Kind() == reflect.Array {
		return t.String()
	}
	return t.Kind().String()
}

// compare handles a rank's report, and decides when all have reported.
func (w *Watcher) compare(from int, e entry) {
	e.from = from
	w.mu.Lock()
	coming := append(w.checks.coming[e.Key], e)
	if len(coming) == 1 && len(w.checks.coming) >= maxComing {
		w.mu.Unlock()
		w.send(from, note{Kind: noteVerdict, Verdict: &verdict{Key: e.Key}})
		return
	}
	w.checks.coming[e.Key] = coming
	if len(coming) < e.Size {
		w.mu.Unlock()
		return
	}
	delete(w.checks.coming, e.Key)
	w.mu.Unlock()
	v := verdict{Key: e.Key, Fault: judgeEntries(coming)}
	if v.Fault != "" {
		w.report("the ranks of %s are not in the same collective call\n%s", e.Comm, indent(v.Fault))
	}
	for _, e := range slices.Backward(coming) { // this rank, the first, comes last: then it may end
		w.send(e.from, note{Kind: noteVerdict, Verdict: &v})
	}
}

// judgeEntries describes the ranks' calls if they are not all the same.
func judgeEntries(entries []entry) string {
	slices.SortFunc(entries, func(a, b entry) int { return a.Rank - b.Rank })
	what := map[string][]int{}
	var order []string
	same, alike, oneLoose := true, true, false
	for _, e := range entries {
		same = same && e.What == entries[0].What
		alike = alike && e.Call == entries[0].Call
		oneLoose = oneLoose || e.Loose
		at := e.What + Callsite{line: e.Line}.At()
		if what[at] == nil {
			order = append(order, at)
		}
		what[at] = append(what[at], e.Rank)
	}
	if same || alike && oneLoose {
		return ""
	}
	var parts []string
	for _, at := range order {
		parts = append(parts, fmt.Sprintf("%s: %s", ranksText(what[at]), at))
	}
	return strings.Join(parts, "; ")
}

// ranksText is "rank 3" or "ranks 0-2 5" of a sorted list.
func ranksText(ranks []int) string {
	if len(ranks) == 1 {
		return fmt.Sprintf("rank %d", ranks[0])
	}
	var words []string
	for i := 0; i < len(ranks); {
		j := i
		for j+1 < len(ranks) && ranks[j+1] == ranks[j]+1 {
			j++
		}
		if j > i {
			words = append(words, fmt.Sprintf("%d-%d", ranks[i], ranks[j]))
		} else {
			words = append(words, fmt.Sprint(ranks[i]))
		}
		i = j + 1
	}
	return "ranks " + strings.Join(words, " ")
}

func indent(parts string) string { return "  " + strings.ReplaceAll(parts, "; ", "\n  ") }

// decided handles a verdict.
func (w *Watcher) decided(v verdict) {
	w.mu.Lock()
	call := w.checks.open[v.Key]
	delete(w.checks.open, v.Key)
	w.mu.Unlock()
	if call == nil {
		return
	}
	if v.Fault != "" {
		call.verdict.err = fmt.Errorf("%w: %s", mpi.ErrMismatch, v.Fault)
	}
	close(call.verdict.decided)
}

// recheck stops waiting for verdicts from ranks that have left, and for those to which ranks that have
// failed or left would have to contribute.
func (w *Watcher) recheck() {
	if failed := w.cfg.Engine.Dead(); len(failed) > 0 {
		w.abandon(failed)
	}
	lost := w.cfg.Engine.Lost()
	w.mu.Lock()
	var open []*PendingCall
	for _, call := range w.checks.open {
		open = append(open, call)
	}
	w.mu.Unlock()
	asked := map[int]error{}
	for _, call := range open {
		if slices.ContainsFunc(lost, call.comm.Group.Contains) {
			w.decided(verdict{Key: call.key}) // the call's own messages say who is missing
			continue
		}
		judge := call.comm.Group.WorldRank(0)
		if _, done := asked[judge]; !done {
			asked[judge] = w.send(judge, note{Kind: noteAlive})
		}
		if asked[judge] != nil {
			w.decided(verdict{Key: call.key})
		}
	}
}

// Call is where the program made the call.
func (c *PendingCall) Call() Callsite { return c.call }

// Agreed waits for the verdict.
func (c *PendingCall) Agreed(ctx context.Context) error {
	select {
	case <-c.verdict.decided:
		return c.verdict.err
	default:
	}
	if !c.alone {
		x := &waiting{call: c.call, coll: c, since: time.Now()}
		c.w.begin(x)
		defer c.w.finish(x)
	}
	select {
	case <-c.verdict.decided:
		return c.verdict.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
