// Package stunserver answers STUN Binding requests (RFC 8489): it reports the source address and
// port of each request. A broker and a proxy each run one, and the two together show a site what
// its NAT does.
//
// It knows no credentials, no sites and no jobs. It sends one reply for one request, only to the
// asker, with the mapped address and, if the request was padded, at most as much padding, so that
// it is of no use for attacks with forged source addresses. Its only state is a set of counters.
package stunserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"time"
)

// maxRequest is the longest datagram that is read whole; only a padded Binding request is that
// long, and what is truncated fails the length check.
const maxRequest = 1500

// Server answers Binding requests. The zero value is ready. It is safe for concurrent use; one
// Server may serve several sockets.
type Server struct {
	verdicts   [verdicts]atomic.Uint64
	unsendable atomic.Uint64
}

// Stats counts datagrams since the Server was made. Each that arrived is in exactly one of
// Answered, Refused, Foreign, Messages and Malformed.
type Stats struct {
	Answered   uint64 // Binding requests that got their mapped address
	Refused    uint64 // Binding requests that require an unknown attribute (error 420)
	Foreign    uint64 // dropped: not STUN, or of RFC 3489
	Messages   uint64 // dropped: STUN, but not a Binding request
	Malformed  uint64 // dropped: wrong lengths or fingerprint, or a source that cannot be answered
	Unsendable uint64 // replies, among Answered and Refused, that the system did not accept
}

// Stats returns the counts so far.
func (s *Server) Stats() Stats {
	return Stats{
		Answered: s.verdicts[answer].Load(), Refused: s.verdicts[refuse].Load(),
		Foreign: s.verdicts[dropForeign].Load(), Messages: s.verdicts[dropMessage].Load(),
		Malformed: s.verdicts[dropMalformed].Load(), Unsendable: s.unsendable.Load(),
	}
}

// Serve answers what arrives at pc until ctx is done, then returns nil; it also returns when
// reading fails, with the error. It starts no goroutine that outlives it. The caller keeps pc;
// while Serve runs no other code may read from it or set its read deadline.
//
// A host with several addresses should bind pc to one of them: a reply from a wildcard socket may
// have another source address than the one that was asked.
func (s *Server) Serve(ctx context.Context, pc net.PacketConn) error {
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		pc.SetReadDeadline(time.Unix(1, 0)) // wakes ReadFrom
		close(stopped)
	})
	defer func() {
		if !stop() {
			<-stopped
			pc.SetReadDeadline(time.Time{})
		}
	}()
	in, out := make([]byte, maxRequest), make([]byte, 0, maxRequest)
	for {
		n, from, err := pc.ReadFrom(in)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("stunserver on %v: reading: %w", pc.LocalAddr(), err)
		}
		reply := s.handle(out, in[:n], addrPort(from))
		if len(reply) == 0 {
			continue
		}
		if _, err := pc.WriteTo(reply, from); err != nil {
			if errors.Is(err, net.ErrClosed) {
				return fmt.Errorf("stunserver on %v: %w", pc.LocalAddr(), err)
			}
			s.unsendable.Add(1)
		}
	}
}

// handle counts a datagram and returns the reply in out's space, or nothing.
func (s *Server) handle(out, datagram []byte, from netip.AddrPort) []byte {
	r, v := classify(datagram)
	if v <= refuse && !answerable(from) {
		v = dropMalformed
	}
	s.verdicts[v].Add(1)
	if v > refuse {
		return nil
	}
	return r.appendReply(out[:0], from)
}

// answerable reports whether the source address can identify one host.
func answerable(from netip.AddrPort) bool {
	a := from.Addr().Unmap()
	return from.Port() != 0 && a.IsValid() && !a.IsUnspecified() && !a.IsMulticast() &&
		a != netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

func addrPort(a net.Addr) netip.AddrPort {
	u, ok := a.(*net.UDPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	return u.AddrPort()
}
