package runjob

import (
	"time"

	"github.com/isthmus-grid/isthmus/cmd/internal/ask"
	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
	"github.com/isthmus-grid/isthmus/launch/submit"
)

// narrator decides which steps are reported in a line.
type narrator struct {
	verbose bool
	last    string // the last reported step
	text    string
	when    time.Time

	awaited  string // the step that is announced if it lasts
	announce func() // ends that; nil: none is
}

// awaited is what a job waits for in a step before its processes run, and what shows why.
var awaited = map[string]struct{ what, next string }{
	"listing":  {"the helper's list of hosts, and how far they are", ask.LookAtHelper},
	"booking":  {"hosts to take the job", "isthmus hosts shows which are up"},
	"starting": {"processes to start", "isthmus ps shows where they are"},
}

// await has a step announced if it lasts.
func (n *narrator) await(p submit.Progress) {
	if p.Step == n.awaited {
		return
	}
	n.stop()
	n.awaited = p.Step
	if a, is := awaited[p.Step]; is {
		n.announce = cmdline.Waiting(a.what, a.next)
	}
}

// stop ends the wait for a step.
func (n *narrator) stop() {
	if n.announce != nil {
		n.announce()
		n.announce = nil
	}
}

// How often steps that take long are reported.
const (
	tellWaiting = 5 * time.Second
	tellStaging = 2 * time.Second
)

// line returns the line to print for a step now; empty: none.
func (n *narrator) line(p submit.Progress, now time.Time) string {
	every := time.Duration(0)
	switch p.Step {
	case "starting", "broken", "back", "died", "joined", "diverged":
	case "waiting":
		every = tellWaiting
	case "staging", "measuring":
		if every = tellStaging; n.last != p.Step {
			if n.last, n.when = p.Step, now; !n.verbose { // short ones are not reported
				return ""
			}
		}
		if n.verbose && p.Have == p.Need {
			every = 0
		}
	case "booking":
		if every = tellStaging; !n.verbose {
			return ""
		}
	default:
		if !n.verbose {
			return ""
		}
	}
	text := p.String()
	if text == n.text || n.last == p.Step && now.Sub(n.when) < every {
		return ""
	}
	n.last, n.text, n.when = p.Step, text, now
	return text
}
