package submit

import (
	"errors"
	"fmt"
	"slices"
	"syscall"

	"github.com/isthmus-grid/isthmus/internal/job/ranks"
	"github.com/isthmus-grid/isthmus/launch/allocate"
	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
	"github.com/isthmus-grid/isthmus/overlay"
)

// outcome is how processes ended, and the consequence for the job: the same rules as in package
// ranks for the processes of one node. A rank with replicas is lost with the last of them; a status
// other than 0 of its program counts at once, whichever replica exits with it.
type outcome struct {
	survive  bool
	need     int                // number of processes of the job
	replicas func(rank int) int // that act as one
	ended    map[allocate.Process]bool
	gone     map[int]int               // replicas of a rank that have died, if any
	well     map[allocate.Process]bool // those that exited with status 0
	failed   *ranks.ExitError          // the first that exited with a non-zero status
	killed   *ranks.ExitError          // the first that a signal ended, or that was lost

	// replaces returns the number of the process that goes on with a lost one's work, ok false if none can;
	// nil: none ever does.
	replaces func(allocate.Process) (number int, ok bool)

	// Of jobs with replicas whose lost ones are replaced: seat returns which replica a process is, joined how many processes were started for a rank besides those that
	// the job began with, and short says that nothing more is to be said of too few spare numbers.
	seat       func(allocate.Process) allocate.Process
	joined     map[int]int
	short      bool
	replicated bool // ranks have replicas, but for a pinned one
}

func newOutcome(need int, replicas func(rank int) int, survive bool) *outcome {
	return &outcome{survive: survive, need: need, replicas: replicas, seat: func(p allocate.Process) allocate.Process { return p }, joined: map[int]int{}, ended: map[allocate.Process]bool{}, gone: map[int]int{}, well: map[allocate.Process]bool{}}
}

// death is the death of a process of which the job has other replicas, or that is replaced.
type death struct {
	process allocate.Process
	why     error
	live    int // other replicas of its rank that run
	of      int // all of them
	next    int // the number of the process that replaces it; 0: none does

	seat allocate.Process // which replica it was
}

// String says for people which replica died, and what is left of its rank.
func (d *death) String() string {
	if d.next > 0 && d.of == 0 {
		return fmt.Sprintf("process %d was lost: %v; process %d replaces it", d.process.Rank, d.why, d.next)
	}
	left := fmt.Sprintf("%d of its %d replicas live", d.live, d.of)
	if d.live == 0 {
		left = "the rank has ended in another replica"
	}
	who := ""
	if d.process != d.seat {
		who = fmt.Sprintf(" (process %d)", d.process.Rank)
	}
	if d.next > 0 {
		left += fmt.Sprintf("; process %d comes in its place", d.next)
	}
	return fmt.Sprintf("rank %d: replica %d%s has died: %v; %s", d.seat.Rank, d.seat.Copy, who, d.why, left)
}

// exited records the end of a process, and returns why the job must end, if it must, or which replica
// has died. Only the first report on a process counts.
func (o *outcome) exited(from overlay.NodeID, m *nodepb.Exited) (bad *ranks.ExitError, died *death) {
	p := m.Process.Value()
	if o.ended[p] {
		return nil, nil
	}
	o.ended[p] = true
	if endedWell(m) {
		o.well[p] = true
		return nil, nil
	}
	what := fmt.Sprintf("exit status %d", m.Status)
	switch {
	case len(m.Text) > 0:
		what = string(m.Text)
	case m.Signal != "" && m.Status > 128:
		what = "signal: " + syscall.Signal(m.Status-128).String()
	}
	return o.bad(p, &ranks.ExitError{Status: int(min(m.Status, 255)), Killed: m.Signal != "", Err: fmt.Errorf("%s (%s)", what, from)})
}

// endedWell reports whether a process exited with status 0.
func endedWell(m *nodepb.Exited) bool { return m.Status == 0 && m.Signal == "" && len(m.Text) == 0 }

// lost records that a process is unreachable. To its peers it counts as killed.
func (o *outcome) lost(from overlay.NodeID, p allocate.Process, why error) (bad *ranks.ExitError, died *death) {
	if o.ended[p] {
		return nil, nil
	}
	o.ended[p] = true
	return o.bad(p, lostError(fmt.Errorf("lost with %s: %w", from, why)))
}

// lostError is how a process ended that is lost: as if SIGKILL had ended it.
func lostError(why error) *ranks.ExitError {
	return &ranks.ExitError{Status: 128 + int(syscall.SIGKILL), Killed: true, Err: why}
}

// endedOf returns how many replicas of a rank have ended, however.
func (o *outcome) endedOf(rank int) (n int) {
	for p := range o.ended {
		if o.seat(p).Rank == rank {
			n++
		}
	}
	return n
}

// bad handles that a process has ended otherwise than well.
func (o *outcome) bad(p allocate.Process, how *ranks.ExitError) (*ranks.ExitError, *death) {
	seat := o.seat(p)
	of := o.replicas(seat.Rank)
	if died := o.died(p, seat, how); died != nil {
		return nil, died
	}
	first := &o.failed
	if how.Killed {
		first = &o.killed
	}
	if how.Rank = seat.Rank; of > 1 {
		how.Err = fmt.Errorf("replica %d: %w", seat.Copy, how.Err)
	}
	if *first == nil {
		*first = how
	}
	if o.survive {
		return nil, nil
	}
	return how, nil
}

// died returns the death of a process, if the job goes on without it or with another one in its place; else it may add to how. A status of its
// own ends the job, as it is what every replica would come to; only a process that came in place of a replica may be the one that could
// not load its state, and others of its rank come to it if it is not.
func (o *outcome) died(p, seat allocate.Process, how *ranks.ExitError) *death {
	if !how.Killed && p == seat {
		return nil
	}
	of := o.replicas(seat.Rank)
	o.gone[seat.Rank]++
	if of > 1 && o.gone[seat.Rank] >= of+o.joined[seat.Rank] {
		return nil // none is left from which another one could have its state
	}
	d := &death{process: p, seat: seat, why: how.Err}
	if of > 1 {
		d.live, d.of = of+o.joined[seat.Rank]-o.endedOf(seat.Rank), of
	}
	if o.replaces == nil || !how.Killed || o.replicated && (of == 1 || o.endedWell(seat.Rank)) {
		return d.ofReplica()
	}
	if next, ok := o.replaces(p); ok {
		o.need++
		d.next = next
		return d
	}
	how.Err = fmt.Errorf("%w; no spare process number is left to replace it: raise --replace", how.Err)
	if !o.short {
		d.why, o.short = how.Err, true
	}
	return d.ofReplica()
}

// ofReplica returns d if it is the death of a replica, else nil.
func (d *death) ofReplica() *death {
	if d.of == 0 {
		return nil
	}
	return d
}

// endedWell reports whether a replica of a rank exited with status 0.
func (o *outcome) endedWell(rank int) bool {
	for p := range o.well {
		if o.seat(p).Rank == rank {
			return true
		}
	}
	return false
}

// endedWellAt reports whether a replica of a rank exited with status 0 on a host, by its processes in places.
func (o *outcome) endedWellAt(places []Placed, rank int, node overlay.NodeID) bool {
	return slices.ContainsFunc(places, func(h Placed) bool {
		return h.Node == node && slices.ContainsFunc(h.Processes, func(p allocate.Process) bool { return p.Rank == rank && o.well[p] })
	})
}

// sources returns for each rank where its lowest replica ran that exited with status 0, on a host that
// is not in lost: its files may be incomplete. If there is none, it is where its lowest replica ran.
func (o *outcome) sources(places []Placed, lost map[overlay.NodeID]bool) map[int]overlay.NodeID {
	best := map[int]allocate.Process{}
	nodes := map[int]overlay.NodeID{}
	for _, h := range places {
		for _, p := range h.Processes {
			b, found := best[p.Rank]
			good, hadGood := o.well[p] && !lost[h.Node], o.well[b] && !lost[nodes[p.Rank]]
			if !found || good && !hadGood || good == hadGood && p.Copy < b.Copy {
				best[p.Rank], nodes[p.Rank] = p, h.Node
			}
		}
	}
	return nodes
}

// verdict returns the result of the job when nothing has ended it early.
func (o *outcome) verdict() error {
	switch {
	case o.failed != nil:
		return o.failed
	case o.killed != nil && len(o.well) == 0:
		return o.killed
	}
	return nil
}

// outputError returns why a job ends when its output cannot be written: as if SIGPIPE had ended the
// process.
func outputError(rank int, err error) error {
	if errors.Is(err, syscall.EPIPE) {
		return &ranks.ExitError{Rank: rank, Status: 128 + int(syscall.SIGPIPE), Killed: true, Err: errors.New("signal: " + syscall.SIGPIPE.String())}
	}
	return &ranks.ExitError{Rank: rank, Status: 1, Err: fmt.Errorf("its output: %w", err)}
}
