// Package dialwindow bounds how many TCP connections out of the site a daemon opens at a time, by a
// window that adapts as a congestion window does. Some firewalls let only a number of new
// connections a second through and drop the SYNs beyond that. The kernel retransmits each of them
// at its own times, so that it is random which connections succeed, and futile dials displace
// important ones. With a window, dials proceed in their order of arrival, a dial that is abandoned
// before its turn has cost nothing, and the daemon knows that connections are scarce.
//
//	dial answered at once         the window grows by one, if it is in use
//	most answered only when the   it halves, down to 4: SYNs were lost, though
//	SYN was sent again, in a      the hosts are up
//	second
//	not answered at all           says nothing: the host may be down
//
// It decides when to dial, but not where or how. The window is a pure core (window.go); its state
// is in memory, one Window for each daemon that dials.
package dialwindow
