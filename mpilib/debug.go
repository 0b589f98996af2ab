package mpilib

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// EnvDebug lists, separated by commas, what the library is to look for while the
// program runs, at a cost; "1" or "all" is everything. All processes of a job have the
// same.
//
//   - "leaks": Finalize reports requests that were never waited for, communicators that
//     were never freed, and messages that were never received, with the lines that made
//     them. It then waits a while for the other ranks to come to Finalize.
//   - "collectives": ranks that are in different collective calls of a communicator, or
//     give another root, count, type or operation, get ErrMismatch, which says who does
//     what at which line. Every call then waits until all ranks have come to it.
//   - "deadlocks": when nothing moves for 5 s, who waits for whom at which line.
//   - "types": that what a receive gives as its type is what was sent (ErrSignature).
//
// With any of them errors name the line of their call. Reports go to the standard
// error, or where WithDebug says. Ranks exchange what they need by messages of their
// own, for which there are links that the program would not have made.
const EnvDebug = "ISTHMUS_DEBUG"

// WithDebug has the library look for everything that EnvDebug lists, and write its
// reports to out, each in one Write; nil is the standard error.
func WithDebug(out io.Writer) Option {
	return func(cfg *config) { cfg.debug, cfg.debugOut = debugAll, out }
}

// debugParts says what to look for.
type debugParts uint8

const (
	debugLeaks debugParts = 1 << iota
	debugCollectives
	debugDeadlocks
	debugTypes
	debugAll = debugLeaks | debugCollectives | debugDeadlocks | debugTypes
)

var debugWords = map[string]debugParts{
	"leaks": debugLeaks, "collectives": debugCollectives, "deadlocks": debugDeadlocks, "types": debugTypes,
	"all": debugAll, "1": debugAll, "0": 0, "": 0,
}

// debugPatience is after how long without a move ranks that wait say so.
const debugPatience = 5 * time.Second

// debugFrom reads the environment.
func debugFrom(lookup func(string) (string, bool)) (parts debugParts, err error) {
	list, set := lookup(EnvDebug)
	if !set {
		return 0, nil
	}
	for word := range strings.SplitSeq(list, ",") {
		part, known := debugWords[strings.TrimSpace(word)]
		if !known {
			return 0, fmt.Errorf("mpilib: %w: %s=%q: no word %q; give 1 for all, or leaks, collectives, deadlocks, types, separated by commas", ErrEnv, EnvDebug, list, word)
		}
		parts |= part
	}
	return parts, nil
}

// readDebug completes what options said of watching by what the environment says.
func (cfg *config) readDebug() error {
	parts, err := debugFrom(cfg.lookup)
	if err != nil {
		return err
	}
	cfg.debug |= parts
	cfg.signs = cfg.signs || cfg.debug&debugTypes != 0
	if name, ok := cfg.lookup(EnvTrace); ok && cfg.trace == "" {
		cfg.trace = name
	}
	if cfg.debugOut == nil {
		cfg.debugOut = os.Stderr
	}
	if cfg.patience == 0 {
		cfg.patience = debugPatience
	}
	return nil
}
