// Package traverse carries a TCP connection request around a firewall, as QCG-OMPI's "traversing
// TCP" does: the asker's SYN is copied as it leaves, brought to the target's helper by other means,
// and injected there into the kernel's TCP, so that the SYN/ACK and all that follows cross the
// firewall in the direction or the form that it lets through. Both programs are unmodified: one
// calls connect, the other listens.
//
//	          asker                     carried                    target
//	connect: SYN ------------------>| firewall
//	         copied  ........................................>  injected
//	         ESTABLISHED <---------------------------------- SYN/ACK
//	         ACK ------------------------------------------> ESTABLISHED
//
// That is Trav, and passes filters that judge single segments. Two additions take it through
// stateful filters (see Level). All three need only CAP_NET_RAW, at both ends: a packet socket that
// sees SYNs, and a raw socket that sends segments made here, outward or, over the loopback
// interface, to the local kernel.
//
// The package knows no broker, no site and no process; the caller determines how the SYN is
// carried, and whether the asker may connect. It injects only SYNs from a named source to a named
// local address. An Engine holds the two sockets and the connections under way; packets, levels and
// the conversation itself are plain functions. Linux only.
package traverse

import (
	"errors"
	"time"
)

var (
	// ErrPrivilege says that a raw or packet socket is not permitted.
	ErrPrivilege = errors.New("traversing TCP needs CAP_NET_RAW")

	// ErrUnsupported is returned where there are no packet sockets.
	ErrUnsupported = errors.New("traversing TCP needs Linux")
)

// Bounds of an Engine.
const (
	maxFlows   = 4096            // connections under way; one more is overlay.ErrOverloaded
	flowLife   = 7 * time.Second // after which a connection under way is dropped
	synWait    = time.Second     // for the SYN of a connect to be seen leaving
	answerWait = time.Second     // for the kernel's answer to an injected SYN
)
