// Package audit keeps a daemon's audit log: who was permitted what, by which rule, and how many
// bytes it moved. It also reads such logs: Verify detects records that were changed or are missing,
// a [Filter] selects records, and a [Sum] adds them up.
//
// A log is a folder of files with one JSON object per line, a [Record]. Every record is numbered
// and holds the SHA-256 of the line before it, across files and restarts, so that a line cannot be
// changed, moved or removed without rewriting all later ones. To detect a rewrite, the daemon
// periodically writes the chain's head to its own log: an admin who ships that log elsewhere can
// compare ([Head]).
//
// Files only grow. What a crash or a full disk left incomplete stays, and the next file accounts
// for it in its first records.
//
// One goroutine writes. Append never blocks: it queues its record, and what does not fit is counted
// and recorded in the log as soon as there is room. The package knows no daemon and decides
// nothing.
package audit
