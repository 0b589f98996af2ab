// Package runner is what benchmarks have in common beside their rows (package bench): the processes
// that they measure with and the orders that these take, and two hosts for two processes:
//
//	left 10.77.0.1 ==== veth ==== 10.77.0.2 right
//
// Each host is a network namespace of this machine. The measured processes run there, programs in C
// compiled for the run or this program again, which take orders on their standard input, one per
// line, and answer on their standard output; between orders they use no CPU.
//
// The package interprets no order and measures nothing. It runs on Linux only and after lab.Enter,
// which ensures that the kernel cleans up everything.
package runner
