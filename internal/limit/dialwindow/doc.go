// Package dialwindow bounds how many TCP connections out of the site a daemon
// opens at a time, by a window that adapts as a congestion window does. Some
// firewalls let only so many new connections a second through and drop the SYNs
// beyond that. The kernel sends each of them again at its own times, so that who
// gets through is chance, and what is dialled in vain takes the place of what
// matters. Behind a window dials have their turn in the order in which they came,
// who gives up before has cost nothing, and the daemon knows that it must be thrifty.
//
//	dial answered at once         the window grows by one, if it is in use
//	most answered only when the   it halves, down to 4: SYNs were lost, though
//	SYN was sent again, in a      somebody answers
//	second
//	not answered at all           says nothing: nobody may be there
//
// It decides when to dial and neither where nor how. The window is a pure core
// (window.go); its state is in memory, one Window for each daemon that dials.
package dialwindow
