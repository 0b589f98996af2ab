// Package twohosts is where benchmarks of two processes run:
//
//	left 10.77.0.1 ==== veth ==== 10.77.0.2 right
//
// Each host is a network namespace of this machine. What is measured are
// processes there, programs in C compiled for the run or this program again,
// which take orders on their standard input, a line each, and answer on their
// standard output; between orders they take no CPU.
//
// The package knows no order and measures nothing. It runs on Linux only and
// after lab.Enter, which sees to it that the kernel clears everything away.
package twohosts
