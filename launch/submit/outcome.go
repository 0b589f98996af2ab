package submit

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/isthmus-grid/isthmus/internal/job/ranks"
	"github.com/isthmus-grid/isthmus/launch/allocate"
	"github.com/isthmus-grid/isthmus/launch/gate/gatepb"
	"github.com/isthmus-grid/isthmus/overlay"
)

// outcome is how processes ended, and the consequence for the job: the same rules as in package
// ranks for the processes of one node.
type outcome struct {
	survive bool
	need    int // number of processes of the job
	ended   map[allocate.Process]bool
	failed  *ranks.ExitError // the first that exited with a non-zero status
	killed  *ranks.ExitError // the first that a signal ended, or that was lost
	good    bool             // one exited with status 0
}

func newOutcome(need int, survive bool) *outcome {
	return &outcome{survive: survive, need: need, ended: map[allocate.Process]bool{}}
}

// exited records the end of a process, and returns why the job must end, if it must. Only the first
// report on a process counts.
func (o *outcome) exited(from overlay.NodeID, m *gatepb.Exited) *ranks.ExitError {
	p := processOf(m.Process)
	if o.ended[p] {
		return nil
	}
	o.ended[p] = true
	if m.Status == 0 && m.Signal == "" && m.Text == "" {
		o.good = true
		return nil
	}
	what := fmt.Sprintf("exit status %d", m.Status)
	switch {
	case m.Text != "":
		what = m.Text
	case m.Signal != "" && m.Status > 128:
		what = "signal: " + syscall.Signal(m.Status-128).String()
	}
	return o.bad(&ranks.ExitError{Rank: p.Rank, Status: int(min(m.Status, 255)), Err: fmt.Errorf("%s (%s)", what, from)}, m.Status > 128)
}

// lost records that a process is unreachable. To its peers it counts as killed.
func (o *outcome) lost(from overlay.NodeID, p allocate.Process, why error) *ranks.ExitError {
	if o.ended[p] {
		return nil
	}
	o.ended[p] = true
	return o.bad(&ranks.ExitError{Rank: p.Rank, Status: 128 + int(syscall.SIGKILL), Err: fmt.Errorf("lost with %s: %w", from, why)}, true)
}

func (o *outcome) bad(how *ranks.ExitError, killed bool) *ranks.ExitError {
	first := &o.failed
	if killed {
		first = &o.killed
	}
	if *first == nil {
		*first = how
	}
	if o.survive {
		return nil
	}
	return how
}

// verdict returns the result of the job when nothing has ended it early.
func (o *outcome) verdict() error {
	switch {
	case o.failed != nil:
		return o.failed
	case o.killed != nil && !o.good:
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
