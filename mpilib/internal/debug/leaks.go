package debug

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/mpilib/internal/comm"
)

// This file finds what a program leaves behind: requests that it never waited for, communicators
// that it never freed, and messages that were never received. For the last, all ranks synchronize
// in Finalize, so that nothing more is sent; each asks the ranks it has sent to what is left,
// because only the sender knows the source lines.

// leaks is what this rank's program started; the Watcher's mu guards it.
type leaks struct {
	open       map[Request]struct{} // whose completion the program has not seen
	unrecorded int                  // not recorded for lack of space
	sent       map[sentTo]*sentFrom
}

const (
	maxOpen  = 1 << 16 // recorded requests
	maxSent  = 1 << 16 // recorded destinations
	lastSent = 4       // lines of each
)

// sentTo identifies a destination of messages. Messages to one are received in order, so unreceived
// ones are the last.
type sentTo struct {
	context uint32
	dst     int // world rank
	tag     int
}

type sentFrom struct {
	what  comm.Transfer
	n     int
	lines [lastSent]string // a ring
}

// lost are messages of one kind that were never received.
type lost struct {
	Context uint32 `json:"context"`
	Tag     int    `json:"tag"`
	Count   int    `json:"count"`
	Bytes   uint64 `json:"bytes"`
}

func (l *leaks) init() {
	l.open, l.sent = map[Request]struct{}{}, map[sentTo]*sentFrom{}
}

func (l *leaks) started(w *Watcher, r Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(l.open) < maxOpen {
		l.open[r] = struct{}{}
	} else {
		l.unrecorded++
	}
	what := r.Transfer()
	if !what.Send {
		return
	}
	at := sentTo{what.Comm.Context, what.Comm.Global(what.Peer), what.Tag}
	s := l.sent[at]
	if s == nil {
		if len(l.sent) >= maxSent {
			return
		}
		s = &sentFrom{what: what}
		l.sent[at] = s
	}
	s.lines[s.n%lastSent] = r.Observation().call.line
	s.n++
}

// last returns the lines of the last n sends, without duplicates, the latest first.
func (s *sentFrom) last(n int) []string {
	var lines []string
	for i := s.n - 1; i >= max(0, s.n-min(n, lastSent)); i-- {
		if line := s.lines[i%lastSent]; !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return lines
}

// audit is the state of Finalize; the Watcher's mu guards it.
type audit struct {
	waiting bool // for other ranks to enter Finalize
	call    Callsite
	since   time.Time
	arrived map[noteKind]int // at rank 0
	open    map[noteKind]chan struct{}
	asked   map[int]struct{} // ranks that have not reported yet
	answers chan struct{}    // closed when all have reported
	lost    map[int][]lost
	failed  chan struct{} // closed when a rank has failed, which will never report; then failure says which
	failure error
}

func (a *audit) init() {
	a.arrived = map[noteKind]int{}
	a.open = map[noteKind]chan struct{}{noteAllFinal: make(chan struct{}), noteAllLeaves: make(chan struct{})}
	a.asked, a.answers, a.lost = map[int]struct{}{}, make(chan struct{}), map[int][]lost{}
	a.failed = make(chan struct{})
}

// abandon ends the wait for all ranks, of which some have failed.
func (w *Watcher) abandon(failed []int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.audit.failure == nil {
		slices.Sort(failed)
		w.audit.failure = fmt.Errorf("%s failed, or ended without Finalize", ranksText(failed))
		close(w.audit.failed)
	}
}

// Finalize reports what the program leaves behind. It is called before anything is closed.
func (w *Watcher) Finalize(ctx context.Context) {
	if w.timeline != nil {
		w.timeline.recordLinks() // while there are any
	}
	if !w.enabled(Leaks) || ctx.Err() != nil {
		return
	}
	call := CurrentCallsite()
	w.mu.Lock()
	w.audit.waiting, w.audit.call, w.audit.since = true, call, time.Now()
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, finalPatience*w.cfg.Patience)
	defer cancel()
	lines := append(w.leakedRequests(), w.leakedComms()...)
	err := w.queryReceivers(ctx)
	w.mu.Lock()
	w.audit.waiting = false
	w.mu.Unlock()
	lines = append(lines, w.lostMessages()...)
	if err != nil {
		lines = append(lines, fmt.Sprintf("whether messages were never received is not known: %v", err))
	}
	if len(lines) > 0 {
		w.report("rank %d leaves behind\n  %s", w.cfg.Engine.Rank(), strings.Join(lines, "\n  "))
	}
}

// finalPatience is the factor on patience for which Finalize waits for other ranks, so that a
// deadlock of those is found in the meantime.
const finalPatience = 6

// queryReceivers queries the ranks that this rank has sent to, once no rank sends any more.
func (w *Watcher) queryReceivers(ctx context.Context) error {
	if err := w.awaitAll(ctx, noteFinal, noteAllFinal); err != nil {
		return err
	}
	w.mu.Lock()
	for to := range w.leaks.sent {
		w.audit.asked[to.dst] = struct{}{}
	}
	asked := slices.Collect(maps.Keys(w.audit.asked))
	if len(asked) == 0 {
		close(w.audit.answers)
	}
	w.mu.Unlock()
	for _, rank := range asked {
		if w.send(rank, note{Kind: noteEnd}) != nil {
			w.answered(rank, nil)
		}
	}
	select {
	case <-w.audit.answers:
	case <-w.audit.failed:
		return w.audit.failure
	case <-ctx.Done():
		return fmt.Errorf("not all ranks answered: %w", ctx.Err())
	}
	return w.awaitAll(ctx, noteLeaving, noteAllLeaves)
}

// awaitAll waits until all ranks have entered Finalize.
func (w *Watcher) awaitAll(ctx context.Context, mine, all noteKind) error {
	if err := w.send(0, note{Kind: mine}); err != nil {
		return err
	}
	select {
	case <-w.audit.open[all]:
		return nil
	case <-w.audit.failed:
		return w.audit.failure
	case <-ctx.Done():
		return fmt.Errorf("not all ranks entered Finalize in time: %w", ctx.Err())
	}
}

// arrive records at rank 0 that a rank has entered.
func (w *Watcher) arrive(kind noteKind) {
	w.mu.Lock()
	w.audit.arrived[kind]++
	all := w.audit.arrived[kind] == w.cfg.Engine.Size()
	w.mu.Unlock()
	if !all {
		return
	}
	answer := map[noteKind]noteKind{noteFinal: noteAllFinal, noteLeaving: noteAllLeaves}[kind]
	for rank := range w.cfg.Engine.Size() {
		if rank != 0 {
			w.send(rank, note{Kind: answer})
		}
	}
	w.released(answer) // last of all, since this rank may end after it
}

func (w *Watcher) released(kind noteKind) {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.audit.open[kind]:
	default:
		close(w.audit.open[kind])
	}
}

// lostFrom returns the messages from a rank that were never received.
func (w *Watcher) lostFrom(source int) []lost {
	count := map[lost]lost{}
	for _, m := range w.cfg.Engine.UnexpectedMessages() {
		if m.Source != source || !w.cfg.Program(m.Context) {
			continue
		}
		key := lost{Context: m.Context, Tag: m.Tag}
		l := count[key]
		count[key] = lost{m.Context, m.Tag, l.Count + 1, l.Bytes + m.Bytes - min(m.Bytes, uint64(w.cfg.Head))}
	}
	return slices.Collect(maps.Values(count))
}

func (w *Watcher) answered(from int, l []lost) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, asked := w.audit.asked[from]; !asked {
		return
	}
	delete(w.audit.asked, from)
	w.audit.lost[from] = l
	if len(w.audit.asked) == 0 {
		close(w.audit.answers)
	}
}

func (w *Watcher) leakedRequests() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	count := map[string]int{}
	for r := range w.leaks.open {
		state := "complete"
		if !r.Handle().Done() {
			state = "not complete"
		}
		count[fmt.Sprintf("a request that was never waited for, %s: %v%s", state, r.Transfer(), r.Observation().call.At())]++
	}
	lines := repeated(count)
	if w.leaks.unrecorded > 0 {
		lines = append(lines, fmt.Sprintf("%d more requests were started while %d were open, and not looked after", w.leaks.unrecorded, maxOpen))
	}
	return lines
}

func (w *Watcher) leakedComms() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	count := map[string]int{}
	for _, c := range w.comms {
		if c.own {
			count[fmt.Sprintf("a communicator that was never freed: %s, made by %s%s", c.comm.Name(), c.created.name, c.created.At())]++
		}
	}
	return repeated(count)
}

func (w *Watcher) lostMessages() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	count := map[string]int{}
	for to, from := range w.leaks.sent {
		for _, l := range w.audit.lost[to.dst] {
			if l.Context == to.context && l.Tag == to.tag {
				count[fmt.Sprintf("%d messages that were never received, %d bytes: %v at %s",
					l.Count, l.Bytes, from.what, strings.Join(from.last(l.Count), ", "))]++
			}
		}
	}
	return repeated(count)
}

// repeated returns each line once, with a count if it occurs several times.
func repeated(count map[string]int) []string {
	var lines []string
	for _, line := range slices.SortedFunc(maps.Keys(count), cmp.Compare[string]) {
		if n := count[line]; n > 1 {
			line = fmt.Sprintf("%d times %s", n, line)
		}
		lines = append(lines, line)
	}
	return lines
}
