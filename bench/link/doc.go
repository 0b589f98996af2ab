// Package link measures what carries a job's messages between two
// processes, in turn with raw TCP in C and in Go over the same wire between two
// hosts (package runner). Each end of a connection is a process of its own,
// for C a program compiled for the run, for Go this program again.
//
// A scenario is a state of the wire and the processors, a figure something to
// measure in it (plan.go); a Transport is a way to carry messages. All of a
// figure's implementations run one after the other, and then all again: what is
// printed are medians of at least five such rounds. The package knows nothing
// of how an implementation works. It keeps no state; lab.Enter sees to it that the
// kernel clears everything away.
package link
