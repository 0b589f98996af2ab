package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
)

// outcomeOf classifies the error of a connect. immediate means that the kernel refused before it
// sent anything.
func outcomeOf(err error, immediate bool) Outcome {
	var ne net.Error
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, syscall.ETIMEDOUT), errors.As(err, &ne) && ne.Timeout():
		return Silent
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET):
		return Reset
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EADDRNOTAVAIL), errors.Is(err, syscall.EADDRINUSE):
		return NoPermit
	case immediate:
		return Routeless
	}
	return ICMPError
}

// icmpName describes a type and code (RFC 792, RFC 1812 section 5.2.7, RFC 4443).
func icmpName(v6 bool, kind, code uint8) string {
	names := map[[2]uint8]string{
		{3, 0}: "network unreachable", {3, 1}: "host unreachable", {3, 2}: "protocol unreachable", {3, 3}: "port unreachable",
		{3, 4}: "fragmentation needed", {3, 9}: "network administratively prohibited", {3, 10}: "host administratively prohibited",
		{3, 13}: "communication administratively prohibited", {11, 0}: "time to live exceeded",
	}
	if v6 {
		names = map[[2]uint8]string{
			{1, 0}: "no route to destination", {1, 1}: "communication administratively prohibited", {1, 3}: "address unreachable",
			{1, 4}: "port unreachable", {1, 5}: "source address failed policy", {1, 6}: "reject route to destination",
			{2, 0}: "packet too big", {3, 0}: "hop limit exceeded",
		}
	}
	if name, ok := names[[2]uint8{kind, code}]; ok {
		return name
	}
	return fmt.Sprintf("type %d code %d", kind, code)
}

func addrPort(a net.Addr) netip.AddrPort {
	var ap netip.AddrPort
	switch a := a.(type) {
	case *net.TCPAddr:
		ap = a.AddrPort()
	case *net.UDPAddr:
		ap = a.AddrPort()
	}
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}
