// Package relay measures the cost of a relay: the same two hosts communicate over TCP directly and
// through a real proxy process on the host between them, in turn.
//
//	client - middle - server
//
// Each host is a network namespace. Direct traffic is routed by middle, so it takes the same two
// wires; relayed connections end there on both sides. The client is this process; server and proxy
// are two more of the same program.
//
// On two CPUs that other work kept busy (load 6 to 15), medians of 5 to 9 repetitions in turn,
// range of six runs: 0.97 to 1.01 of direct at 1 Gb/s; 15 to 30 us added one way, four of the six
// within the target of 25; 0.66 to 0.83 of direct unlimited, short of the target of 0.9: client,
// proxy and server share two CPUs that direct traffic has for client and server alone. A relayed
// gigabyte takes the proxy 0.3 to 0.4 s of CPU time, an idle link 20 KB of its memory and two
// descriptors.
//
// The package knows of a proxy what a broker knows: its address and its ticket key. It keeps no
// state; lab.Enter ensures that the kernel cleans up everything.
package relay
