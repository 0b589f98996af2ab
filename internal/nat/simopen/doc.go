// Package simopen is one end of a TCP simultaneous open (RFC 9293, section 3.5): both ends dial
// each other from known ports at an agreed instant, so that each one's SYN opens its own firewall
// or NAT for the other's.
//
// A Port is a listener and the sockets that dial from the same port. The listener stays while they
// dial, because a SYN that arrives when no socket dials would otherwise be answered with a reset;
// the kernel looks for a dialling socket first, so a crossing SYN still goes to it. Whichever of
// the two gets the connection wins, and since there is one pair of addresses and ports there is one
// connection, even when different sockets win at the two ends.
//
//	Prepare   a port of this host
//	Observe   its public port, asked of two reflectors from the port itself
//	Agree     (where both ends' reports are known) when each end dials, or why it is no use
//	Open      the dial
//
// The package knows no broker: the caller transports the reports and the agreement, and knows who
// the peer is. A peer that answers from the right address is accepted; the link above authenticates
// it. Agree and Clock are functions of their arguments. All state is in the Port.
//
// It needs no privilege, but needs Linux.
package simopen

import "errors"

var (
	// ErrUnpredictable means that an end's NAT uses another port for each destination, so that the
	// peer cannot know where to dial.
	ErrUnpredictable = errors.New("the outside port cannot be foretold")

	// ErrNotLinux is returned where the sockets' behaviour is not known.
	ErrNotLinux = errors.New("simultaneous open needs Linux")
)
