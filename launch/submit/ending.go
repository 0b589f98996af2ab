package submit

// This file handles the end of a submission: its cause, its result, and the release of the hosts.

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/isthmus-grid/isthmus/internal/job/ranks"
	"github.com/isthmus-grid/isthmus/launch/allocate"
	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
	"github.com/isthmus-grid/isthmus/launch/reserve"
	"github.com/isthmus-grid/isthmus/overlay"
)

// signalled handles a signal to this process: the job must end, and at the second signal at once.
func (d *driver) signalled(s os.Signal) {
	sig, ok := s.(syscall.Signal)
	if !ok {
		return
	}
	if !d.killAt.IsZero() {
		d.killAt = time.Now()
		d.checkDeadlines(d.killAt)
		return
	}
	d.end(&ranks.SignalError{Signal: sig})
}

// failed ends the job because of a failure. Once the submission itself has failed, that stays the
// cause: the cancellations by nodes that follow are not another one.
func (d *driver) failed(cause error) {
	if d.sub.Phase() < reserve.Cancelling {
		d.end(cause)
	}
}

// end ends the job for a cause, unless it is ending already.
func (d *driver) end(cause error) {
	if d.cause != nil {
		return
	}
	d.cause = cause
	now := time.Now()
	if d.sub.Phase() != reserve.Launched {
		d.quitAt = now.Add(grace + killTime)
		d.do(d.sub.Cancel(now))
		return
	}
	d.replaced.end(cause)
	d.killAt = now.Add(grace)
	d.quitAt = d.killAt.Add(killTime)
	d.signal("TERM")
}

// signal sends a signal to all remaining processes.
func (d *driver) signal(name string) {
	for _, p := range d.places {
		if d.over[p.Node] == nil {
			d.talks[p.Node].sendMessage(&nodepb.ToNode{Say: &nodepb.ToNode_Signal{Signal: &nodepb.Signal{Name: name}}})
		}
	}
}

// done reports whether there is nothing left to do or to wait for.
func (d *driver) done() bool {
	if !d.quitAt.IsZero() && !time.Now().Before(d.quitAt) {
		return true
	}
	switch d.sub.Phase() {
	case reserve.Failed:
		return true
	case reserve.Launched:
		return d.places != nil && d.replaced.running == 0 && !slices.ContainsFunc(d.places, d.isAwaited)
	}
	return false
}

// isAwaited reports whether something is still to be heard from a host. A host that cannot be reached is
// not waited for when all its ranks have ended well elsewhere.
func (d *driver) isAwaited(p Placed) bool {
	if d.over[p.Node] != nil {
		return false
	}
	return !d.broken[p.Node] || slices.ContainsFunc(p.Processes, func(q allocate.Process) bool {
		return d.place.replicas(q.Rank) == 1 || d.outcome.well[q] || !d.outcome.endedWell(q.Rank)
	})
}

// verdict returns the result of the submission.
func (d *driver) verdict() error {
	err := d.cause
	switch {
	case err == nil && d.sub.Phase() == reserve.Failed:
		err = d.sub.Err()
		if n := len(d.unreached); n > 3 {
			d.unreached = append(d.unreached[:3], fmt.Sprintf("and %d more", n-3))
		}
		if len(d.unreached) > 0 {
			err = &annotated{err, strings.Join(d.unreached, "; ")}
		}
		return err
	case err == nil:
		err = d.outcome.verdict()
	}
	if err == nil {
		return nil
	}
	// errors.Is and errors.As see through this.
	if len(d.endedBy) > 0 {
		err = &annotated{err, strings.Join(d.endedBy, ", ")}
	}
	var silent []string
	for _, p := range d.places {
		if d.over[p.Node] == nil {
			silent = append(silent, p.Node.String())
		}
	}
	if len(silent) > 0 && d.sub.Phase() == reserve.Launched {
		err = &annotated{err, strings.Join(silent, ", ") + " did not confirm the end; processes there are ended within " + retryTime.String()}
	}
	return err
}

// annotated is an error with additional text.
type annotated struct {
	err  error
	note string
}

func (a *annotated) Error() string { return fmt.Sprintf("%v (%s)", a.err, a.note) }
func (a *annotated) Unwrap() error { return a.err }

// closeAll lets the conversations with the hosts of the job end, and releases the hosts that were
// booked unnecessarily, so that their leases need not expire.
func (d *driver) closeAll() {
	d.stdin.close()
	if !d.quitAt.IsZero() && !time.Now().Before(d.quitAt) {
		return // they had their time
	}
	used := map[overlay.NodeID]bool{}
	var rest, asked []*conversation
	for _, p := range d.places {
		used[p.Node] = true
		if !d.talks[p.Node].hasEnded() {
			rest = append(rest, d.talks[p.Node])
		}
	}
	for node, c := range d.talks {
		if used[node] || c.hasEnded() {
			continue
		}
		c.sendMessage(&nodepb.ToNode{Say: &nodepb.ToNode_Cancel{Cancel: &nodepb.Cancel{Key: c.key[:]}}})
		if c.isHeld() {
			rest = append(rest, c)
		} else {
			asked = append(asked, c)
		}
	}
	d.await(rest, partTime)
	if time.Since(d.begun) < answerTime { // later, they have been given up
		d.await(asked, askedTime)
	}
}

// await waits for conversations to end, but no longer than most.
func (d *driver) await(all []*conversation, most time.Duration) {
	late := time.NewTimer(most)
	defer late.Stop()
	for _, c := range all {
		for ended := c.done; ended != nil; {
			select {
			case <-d.events: // no longer relevant
			case <-ended:
				ended = nil
			case <-late.C:
				return
			}
		}
	}
}
