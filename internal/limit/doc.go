// Package limit bounds shared resources: places, calls, bytes, counted by holder (a node, a site, a
// source address, a uid) and in total, so that no holder takes the share of others.
//
// A [Counter] refuses what exceeds a limit. [Places] makes room when the total is reached, by
// taking a place from the key that holds the most, so that a key that holds none always gets one.
//
// It knows no socket, no clock and no peer: callers name the key, and close what was taken away. A
// key costs memory only while it holds something, so that there are never more keys than the total.
// Only a [Bounded], for names that a daemon does not choose, such as users and sites, keeps its keys.
package limit

import (
	"fmt"

	"github.com/isthmus-grid/isthmus/overlay"
)

// Bounds are the limits of one resource, and the words in which a refusal names them. A limit of 0
// or less is unlimited.
type Bounds struct {
	What   string // what is counted, in the plural: "registered processes"
	Total  int    // of all keys together
	PerKey int    // of one key

	TotalSetting string // the setting of Total: "limits.processes"; "": none
	KeySetting   string // the setting of PerKey
}

// Exceeded is a refusal because of a limit. It is an overlay.ErrOverloaded.
type Exceeded struct {
	What    string // as in Bounds
	Of      string // the key that reached the limit; "" for the total
	Max     int    // the limit
	Setting string // its name in the settings; "": none
	Evicted bool   // a place was taken away again for a newcomer
}

// Error says which limit was reached, by which key, and the setting's name.
func (e *Exceeded) Error() string {
	whose, setting := e.Of, ""
	if whose == "" {
		whose = "all together"
	}
	if e.Setting != "" {
		setting = " (" + e.Setting + ")"
	}
	if e.Evicted {
		return fmt.Sprintf("%v: the limit of %d %s%s is reached; to make room, the oldest of %s, which has the most, is closed",
			overlay.ErrOverloaded, e.Max, e.What, setting, whose)
	}
	return fmt.Sprintf("%v: the limit of %d %s for %s is reached%s; try again later", overlay.ErrOverloaded, e.Max, e.What, whose, setting)
}

// Unwrap returns overlay.ErrOverloaded.
func (e *Exceeded) Unwrap() error { return overlay.ErrOverloaded }

func (b Bounds) overKey(key any) *Exceeded {
	return &Exceeded{What: b.What, Of: fmt.Sprint(key), Max: b.PerKey, Setting: b.KeySetting}
}

func (b Bounds) overTotal() *Exceeded {
	return &Exceeded{What: b.What, Max: b.Total, Setting: b.TotalSetting}
}

// Stats is the use of the limits, for metrics.
type Stats struct {
	Used, Max    int    // of all keys together
	Most, PerKey int    // of the key with the most
	Refused      uint64 // over Max, since the start
	KeyRefused   uint64 // over PerKey, since the start
	Evicted      uint64 // places taken away, since the start
}
