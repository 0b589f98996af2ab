// Package offer has the entries of the grid's list of hosts: the resources that a node's owner
// offers to others' jobs, and whether the node is up.
//
// It knows neither who may use them (package reserve applies the owner's rules) nor who uses them
// now (only the node service knows that), and it has no clock and no state: its values are copied
// from the helper that makes them to the readers of the list.
package offer

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/isthmus-grid/isthmus/overlay"
)

// Bounds on a list. A list of MaxHosts nodes fits one message.
const (
	MaxHosts     = 20_000
	MaxJobs      = 10_000
	MaxProcesses = 1 << 20
	MaxCPU       = 1 << 30 // thousandths of a core
	MaxPower     = 1 << 30 // millions of multiplications and additions a second
)

// Offer is what a node's owner offers to others' jobs. The zero Offer is nothing.
type Offer struct {
	Jobs      int   `json:"jobs"`      // J: at a time; 0: none
	Processes int   `json:"processes"` // P: of one job at a time
	Memory    int64 `json:"memory"`    // bytes for all jobs together; 0: not limited
	CPU       int   `json:"cpu"`       // thousandths of a core for all jobs together; 0: not limited
	Power     int   `json:"power"`     // of all cores together, in millions of multiplications and additions a second; 0: unknown
}

// Check returns an error if the offer is invalid.
func (o Offer) Check() error {
	for _, f := range []struct {
		name       string
		value, max int64
	}{
		{"jobs", int64(o.Jobs), MaxJobs}, {"processes", int64(o.Processes), MaxProcesses},
		{"memory", o.Memory, math.MaxInt64}, {"cpu", int64(o.CPU), MaxCPU}, {"power", int64(o.Power), MaxPower},
	} {
		if f.value < 0 || f.value > f.max {
			return fmt.Errorf("an offer of %s: %d; want 0 to %d", f.name, f.value, f.max)
		}
	}
	return nil
}

// State is the state of a node, as far as the list knows.
type State uint8

// The states.
const (
	Up      State = iota + 1 // its helper has a session with its frontal
	Away                     // it had one
	Unknown                  // its site's frontal is disconnected
)

var stateNames = [...]string{Up: "up", Away: "away", Unknown: "unknown"}

// String returns the word for the state.
func (s State) String() string {
	if s == 0 || int(s) >= len(stateNames) {
		return fmt.Sprintf("state(%d)", uint8(s))
	}
	return stateNames[s]
}

// MarshalText implements encoding.TextMarshaler.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *State) UnmarshalText(text []byte) error {
	for v := Up; v <= Unknown; v++ {
		if v.String() == string(text) {
			*s = v
			return nil
		}
	}
	return fmt.Errorf("state %q: want %v, %v or %v", text, Up, Away, Unknown)
}

// Host is a node in the list.
type Host struct {
	Node   overlay.NodeID
	State  State
	Silent time.Duration // how long it has not been known to be up, in whole seconds; 0 while Up
	Offer  Offer
	Note   string // for people: what is wrong with it all the same; see MaxNote
}

// MaxNote bounds a host's note, in bytes of printable text.
const MaxNote = 500

// noteOf returns a text as a note: what another daemon says is printed on terminals.
func noteOf(text string) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
	for len(text) > MaxNote {
		_, last := utf8.DecodeLastRuneInString(text)
		text = text[:len(text)-last]
	}
	return text
}

// Compare orders hosts by site and node.
func Compare(a, b Host) int {
	return cmp.Or(cmp.Compare(a.Node.Site, b.Node.Site), cmp.Compare(a.Node.Name, b.Node.Name))
}

// Counts is the number of hosts by state.
type Counts struct {
	Up      int `json:"up"`
	Away    int `json:"away"`
	Unknown int `json:"unknown"`
}

// Count counts hosts by state.
func Count(hosts []Host) Counts {
	var c Counts
	for _, h := range hosts {
		switch h.State {
		case Up:
			c.Up++
		case Away:
			c.Away++
		default:
			c.Unknown++
		}
	}
	return c
}
