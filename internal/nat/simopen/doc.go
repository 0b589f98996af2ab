// Package simopen is one end of a TCP simultaneous open (RFC 9293, section
// 3.5): both ends dial each other from known ports at an agreed instant, so
// that each one's SYN opens its own firewall or NAT for the other's.
//
// A Port is a listener and the sockets that dial from the same port. The
// listener stays while they dial, because a SYN that comes when no socket dials
// would otherwise be answered with a reset; the kernel looks for a dialling
// socket first, so a crossing SYN still goes to it. Whichever of the two gets
// the connection wins, and since there is one pair of addresses and ports there
// is one connection, even when the ends won differently.
//
//	Prepare   a port of this host
//	Observe   which port others see, asked of two vantage points from the port itself
//	Agree     (somewhere both ends' reports meet) when each end dials, or why it is no use
//	Open      the dial
//
// The package knows no broker: how the reports and the agreement travel is the
// caller's affair, and so is who the peer is. Whoever answers from the right
// address is taken; the link above authenticates. Agree and Clock are functions
// of their arguments. All state is in the Port.
//
// It needs no privilege, and Linux.
package simopen

import "errors"

var (
	// ErrUnpredictable says that an end's NAT shows another port to each
	// destination, so that the peer cannot know where to dial.
	ErrUnpredictable = errors.New("the outside port cannot be foretold")

	// ErrNotLinux is returned where the sockets' behaviour is not known.
	ErrNotLinux = errors.New("simultaneous open needs Linux")
)
