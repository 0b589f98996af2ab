// Package debug observes a program's use of messages: it finds leaks, ranks that are in different
// collective calls, and deadlocks, and writes timelines. A Watcher is called when communicators,
// requests and collective calls begin and end, and exchanges messages with those of other ranks
// over the engine, in its own context.
//
// It accesses communicators through their Cores and requests through Request, and neither creates
// nor changes any. Its state is in the Watcher, with bounds on everything that grows with the
// program's activity.
package debug

import (
	"fmt"
	"strings"
	"time"
)

// Parts selects what to look for.
type Parts uint8

// The parts.
const (
	Leaks Parts = 1 << iota
	Collectives
	Deadlocks
	Types // not done by a Watcher: the messages carry the signatures
	All   = Leaks | Collectives | Deadlocks | Types
)

var words = map[string]Parts{
	"leaks": Leaks, "collectives": Collectives, "deadlocks": Deadlocks, "types": Types,
	"all": All, "1": All, "0": 0, "": 0,
}

// DefaultPatience is how long ranks wait without progress before they report it.
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
