package reflector

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// How long a call-back waits before it reports silence. A SYN is sent again after a second, so that
// one lost packet does not look like a filter, and its answer may take 1.4 s, beyond two satellites; a datagram is sent three times for the same reason.
// A profile that a longer silence makes worse needs a second measurement that agrees (probe.Measured.Steady).
const (
	tcpSilence = 2500 * time.Millisecond
	udpSilence = 300 * time.Millisecond
	udpCopies  = 3
)

// NonceLen is the length of a call-back's payload in bytes.
const NonceLen = 16

// MaxAfter is the longest delay of an answer.
const MaxAfter = 15 * time.Minute

// Target is the target of a call-back. ParseTarget makes one from a message.
type Target struct {
	To    netip.AddrPort
	UDP   bool
	Nonce [NonceLen]byte
	After time.Duration // 0: at once and from a new port; otherwise as an answer, after this delay
	Quiet bool          // instead: keep a quiet port for To
	Port  uint16        // the quiet port to call from; 0: a new one
}

// ParseTarget checks the form of a request. It rejects addresses that do not identify one host, and
// loopback addresses unless loopback is set.
func ParseTarget(req *controlpb.CallBackRequest, loopback bool) (Target, error) {
	t := Target{UDP: req.GetUdp()}
	to, err := netip.ParseAddrPort(req.GetTo())
	if err != nil {
		return t, fmt.Errorf("%w: call back %q: %w", wire.ErrMalformed, req.GetTo(), err)
	}
	if len(req.GetNonce()) != NonceLen {
		return t, fmt.Errorf("%w: a nonce of %d bytes, want %d", wire.ErrMalformed, len(req.GetNonce()), NonceLen)
	}
	t.To, t.Nonce = plain(to), [NonceLen]byte(req.GetNonce())
	if t.After = time.Duration(req.GetAfterS()) * time.Second; t.After > MaxAfter {
		return t, fmt.Errorf("%w: an answer after %v, at most %v", wire.ErrMalformed, t.After, MaxAfter)
	}
	t.Quiet, t.Port = req.GetQuiet(), uint16(req.GetFromPort())
	if (t.Quiet || req.GetFromPort() != 0) && (t.UDP || t.After != 0) || req.GetFromPort() > math.MaxUint16 {
		return t, fmt.Errorf("%w: a quiet port is one of TCP, from which a call goes out at once", wire.ErrMalformed)
	}
	ip := t.To.Addr()
	why := ""
	switch {
	case t.To.Port() == 0:
		why = "has no port"
	case ip.IsUnspecified(), ip.IsMulticast(), ip == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		why = "is not one host's address"
	case ip.IsLinkLocalUnicast():
		why = "is link-local"
	case ip.IsLoopback() && !loopback:
		why = "is a loopback address of the host that calls back"
	default:
		return t, nil
	}
	return t, fmt.Errorf("%w: call back %v: it %s", overlay.ErrForbidden, t.To, why)
}

// CallBack contacts t once, from the given local address or, if that is not valid, one that the
// system chooses, and returns the outcome. It takes at most three seconds and never fails: local
// failures are UNKNOWN, with the reason in the text.
func CallBack(ctx context.Context, t Target, local netip.Addr) *controlpb.CallBackResponse {
	if t.UDP {
		return callUDP(ctx, t, local)
	}
	return callTCP(ctx, t, local)
}

func callTCP(ctx context.Context, t Target, local netip.Addr) *controlpb.CallBackResponse {
	d := net.Dialer{KeepAlive: -1}
	if local.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(local, 0))
	}
	return dialTCP(ctx, t, d)
}

func dialTCP(ctx context.Context, t Target, d net.Dialer) *controlpb.CallBackResponse {
	ctx, cancel := context.WithTimeout(ctx, tcpSilence)
	defer cancel()
	d.SetMultipathTCP(false)
	c, err := d.DialContext(ctx, "tcp", t.To.String())
	if err != nil {
		return outcome(t, tcpSilence, err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(udpSilence))
	if _, err := c.Write(t.Nonce[:]); err == nil {
		c.(*net.TCPConn).CloseWrite()
		io.Copy(io.Discard, io.LimitReader(c, 4<<10)) // until the other side has read and closed
	}
	return &controlpb.CallBackResponse{Outcome: controlpb.CallBackResponse_CONNECTED, Text: fmt.Sprintf("%v accepted the connection", t.To)}
}

func callUDP(ctx context.Context, t Target, local netip.Addr) *controlpb.CallBackResponse {
	d := net.Dialer{}
	if local.IsValid() {
		d.LocalAddr = net.UDPAddrFromAddrPort(netip.AddrPortFrom(local, 0))
	}
	c, err := d.DialContext(ctx, "udp", t.To.String())
	if err != nil {
		return outcome(t, 0, err)
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })()
	for range udpCopies {
		if _, err := c.Write(t.Nonce[:]); err != nil {
			return outcome(t, udpSilence, err)
		}
		// Wait only for ICMP errors; what the other side sends is not read.
		c.SetReadDeadline(time.Now().Add(udpSilence / udpCopies))
		if _, err := c.Read(make([]byte, 1)); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return outcome(t, udpSilence, err)
		}
	}
	return outcome(t, udpSilence, context.DeadlineExceeded)
}

// outcome returns the class and text for the error of a call-back.
func outcome(t Target, bound time.Duration, err error) *controlpb.CallBackResponse {
	var ne net.Error
	what := "SYN"
	if t.UDP {
		what = "datagram"
	}
	switch {
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET):
		return &controlpb.CallBackResponse{Outcome: controlpb.CallBackResponse_RESET, Text: fmt.Sprintf("a %s to %v was refused: %v", what, t.To, cause(err))}
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPROTO):
		return &controlpb.CallBackResponse{Outcome: controlpb.CallBackResponse_UNREACHABLE, Text: fmt.Sprintf("a %s to %v drew an ICMP error: %v", what, t.To, cause(err))}
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &ne) && ne.Timeout():
		return &controlpb.CallBackResponse{Outcome: controlpb.CallBackResponse_SILENT, Text: fmt.Sprintf("no answer from %v within %v", t.To, bound)}
	}
	return &controlpb.CallBackResponse{Outcome: controlpb.CallBackResponse_UNKNOWN, Text: fmt.Sprintf("could not send a %s to %v: %v", what, t.To, cause(err))}
}

// cause returns an error without the addresses that net adds.
func cause(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}
