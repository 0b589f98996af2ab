package submit

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/isthmus-grid/isthmus/internal/job/ranks"
	"github.com/isthmus-grid/isthmus/launch/allocate"
	"github.com/isthmus-grid/isthmus/launch/nodeservice/gatepb"
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
}

func newOutcome(need int, replicas func(rank int) int, survive bool) *outcome {
	return &outcome{survive: survive, need: need, replicas: replicas, ended: map[allocate.Process]bool{}, gone: map[int]int{}, well: map[allocate.Process]bool{}}
}

// death is the death of a process of which the job has other replicas.
type death struct {
	process allocate.Process
	why     error
	live    int // other replicas of its rank that run
	of      int // all of them
}

// String says for people which replica died, and what is left of its rank.
func (d *death) String() string {
	left := fmt.Sprintf("%d of its %d replicas live", d.live, d.of)
	if d.live == 0 {
		left = "the rank has ended in another replica"
	}
	return fmt.Sprintf("rank %d: replica %d has died: %v; %s", d.process.Rank, d.process.Copy, d.why, left)
}

// exited records the end of a process, and returns why the job must end, if it must, or which replica
// has died. Only the first report on a process counts.
func (o *outcome) exited(from overlay.NodeID, m *gatepb.Exited) (bad *ranks.ExitError, died *death) {
	p := processOf(m.Process)
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
	case m.Text != "":
		what = m.Text
	case m.Signal != "" && m.Status > 128:
		what = "signal: " + syscall.Signal(m.Status-128).String()
	}
	return o.bad(p, int(min(m.Status, 255)), fmt.Errorf("%s (%s)", what, from))
}

// endedWell reports whether a process exited with status 0.
func endedWell(m *gatepb.Exited) bool { return m.Status == 0 && m.Signal == "" && m.Text == "" }

// lost records that a process is unreachable. To its peers it counts as killed.
func (o *outcome) lost(from overlay.NodeID, p allocate.Process, why error) (bad *ranks.ExitError, died *death) {
	if o.ended[p] {
		return nil, nil
	}
	o.ended[p] = true
	return o.bad(p, 128+int(syscall.SIGKILL), fmt.Errorf("lost with %s: %w", from, why))
}

// endedOf returns how many replicas of a rank have ended, however.
func (o *outcome) endedOf(rank int) (n int) {
	for p := range o.ended {
		if p.Rank == rank {
			n++
		}
	}
	return n
}

func (o *outcome) bad(p allocate.Process, status int, why error) (*ranks.ExitError, *death) {
	first, of := &o.failed, o.replicas(p.Rank)
	if status > 128 {
		first = &o.killed
		o.gone[p.Rank]++
		if o.gone[p.Rank] < of {
			return nil, &death{p, why, of - o.endedOf(p.Rank), of}
		}
	}
	if of > 1 {
		why = fmt.Errorf("replica %d: %w", p.Copy, why)
	}
	how := &ranks.ExitError{Rank: p.Rank, Status: status, Err: why}
	if *first == nil {
		*first = how
	}
	if o.survive {
		return nil, nil
	}
	return how, nil
}

// endedWell reports whether a replica of a rank exited with status 0.
func (o *outcome) endedWell(rank int) bool {
	for p := range o.well {
		if p.Rank == rank {
			return true
		}
	}
	return false
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
		return &ranks.ExitError{Rank: rank, Status: 128 + int(syscall.SIGPIPE), Err: errors.New("signal: " + syscall.SIGPIPE.String())}
	}
	return &ranks.ExitError{Rank: rank, Status: 1, Err: fmt.Errorf("its output: %w", err)}
}
