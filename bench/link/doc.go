// Package link measures the transports of a job's messages between two processes, alternately with
// raw TCP in C and in Go over the same wire between two hosts (package runner). Each end of a
// connection is a process of its own: a program compiled for the run for C, and this program again
// for Go.
//
// A scenario is a state of the wire and the processors, a figure something to measure in it
// (plan.go); a Transport is a way to send messages. The implementations of a figure run one after
// the other, round by round; the results are medians of at least five rounds. The package knows
// nothing of how an implementation works. It keeps no state; lab.Enter ensures that the kernel
// cleans up everything.
package link
