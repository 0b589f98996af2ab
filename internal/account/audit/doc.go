// Package audit keeps a daemon's audit log: who was let do what, by which
// rule, and how many bytes it moved. It also reads such logs back: Verify says
// whether anything was changed or is missing, and Query answers questions.
//
// A log is a folder of files with one JSON object per line, a [Record]. Every
// record is numbered and holds the SHA-256 of the line before it, over files
// and restarts, so that a line cannot be changed, moved or taken out without
// all later ones being written anew. Against that, the daemon tells the
// chain's head to its own log now and then: whoever ships that log elsewhere
// can compare ([Head]).
//
// Files only grow. What a crash or a full disk left unfinished stays where it
// is, and the next file accounts for it in its first records.
//
// One goroutine writes. Append never waits: it hands its record over, and what
// does not fit is counted and said in the log as soon as there is room. The
// package knows no daemon and decides nothing.
package audit
