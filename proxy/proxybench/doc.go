// Package proxybench measures what a relay costs: the same two hosts talk TCP
// directly and through a real proxy process on the host between them, in turn.
//
//	client - 10.1.0.0/24 - middle - 10.2.0.0/24 - server
//
// Each host is a network namespace. What is direct is routed by middle, so it
// takes the same two wires; what is relayed ends there twice. The client is
// this process; server and proxy are two more of the same program.
//
// It knows of a proxy what a broker knows: its address and its ticket key. It
// keeps no state; lab.Enter sees to it that the kernel clears everything away.
package proxybench
