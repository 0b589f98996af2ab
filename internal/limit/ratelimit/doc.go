// Package ratelimit enforces the limits of package quota on the links of a daemon: it admits links,
// makes them wait for their turn, counts what they move in a month and stores that.
//
// A link that must wait is not read from, so its sender is slowed down by its own full buffers; no
// link is disconnected. The package knows no socket: a Throttle is what package carrier calls a
// Pacer.
//
// All state belongs to a Limiter and is guarded by its mutex, except for the file of the month's
// counts, which a successor process may share (state.go).
package ratelimit
