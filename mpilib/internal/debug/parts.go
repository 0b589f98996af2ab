// Package debug follows what a program does with its messages: it finds leaks, ranks that
// are in different collective calls, and deadlocks, and writes timelines. A Watcher is
// told of communicators, requests and collective calls as they begin and end, and talks
// to those of other ranks over the engine, in a context of its own.
//
// It sees communicators as their Cores and requests through Request, and neither makes nor
// changes any. What it knows is in the Watcher, with bounds on everything that grows with
// what the program does.
package debug

import (
	"fmt"
	"strings"
	"time"
)

// Parts says what to look for.
type Parts uint8

// The parts.
const (
	Leaks Parts = 1 << iota
	Collectives
	Deadlocks
	Types // no business of a Watcher's: the messages carry what tells
	All   = Leaks | Collectives | Deadlocks | Types
)

var words = map[string]Parts{
	"leaks": Leaks, "collectives": Collectives, "deadlocks": Deadlocks, "types": Types,
	"all": All, "1": All, "0": 0, "": 0,
}

// DefaultPatience is after how long without a move ranks that wait say so.
const DefaultPatience = 5 * time.Second

// Parse reads a list of words, separated by commas.
func Parse(list string) (parts Parts, err error) {
	for word := range strings.SplitSeq(list, ",") {
		part, known := words[strings.TrimSpace(word)]
		if !known {
			return 0, fmt.Errorf("no word %q; give 1 for all, or leaks, collectives, deadlocks, types, separated by commas", word)
		}
		parts |= part
	}
	return parts, nil
}
