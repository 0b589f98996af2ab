package simopen

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// A Mapping is a port's mapping as reflectors saw it.
type Mapping struct {
	Local   netip.AddrPort   // the port
	Outside netip.AddrPort   // as seen by the first reflector that answered
	Seen    []netip.AddrPort // as seen by each reflector; not valid without an answer
	// Independent says that a peer will see Outside as well: two reflectors did, or there is no
	// translation. RFC 4787 calls it endpoint-independent mapping.
	Independent bool
	// Samples holds one clock sample for each entry of Seen.
	Samples []Sample
	// Failed is why reflectors did not answer, or nil.
	Failed error
}

// newMapping derives a Mapping from the observations.
func newMapping(local netip.AddrPort, seen []netip.AddrPort, samples []Sample, failed error) Mapping {
	m := Mapping{Local: local, Seen: seen, Samples: samples, Failed: failed}
	answers, same := 0, true
	for _, s := range seen {
		if !s.IsValid() {
			continue
		}
		if answers++; answers == 1 {
			m.Outside = s
		}
		same = same && s == m.Outside
	}
	m.Independent = same && (answers > 1 || answers == 1 && m.Outside == local)
	return m
}

// difference returns why the mapping is not known to be independent.
func (m Mapping) difference() string {
	var seen []string
	for _, s := range m.Seen {
		if s.IsValid() {
			seen = append(seen, s.String())
		}
	}
	switch len(seen) {
	case 0:
		return fmt.Sprintf("no host outside saw port %d", m.Local.Port())
	case 1:
		return fmt.Sprintf("only one reflector saw port %d, as %s", m.Local.Port(), seen[0])
	}
	return fmt.Sprintf("its port %d was seen as %s", m.Local.Port(), strings.Join(seen, " and "))
}

// askPatience bounds a question, and the wait for one.
const askPatience = 7 * time.Second

// Ask asks the reflector at the other end of c for c's source address. The sample compares the
// reflector's clock with the local one. c stays open, and must stay open while the mapping is
// to last.
func Ask(ctx context.Context, c net.Conn) (netip.AddrPort, Sample, error) {
	fail := func(err error) (netip.AddrPort, Sample, error) {
		return netip.AddrPort{}, Sample{}, fmt.Errorf("asking %v for the outside address of %v: %w", c.RemoteAddr(), c.LocalAddr(), err)
	}
	stop := bound(ctx, c)
	defer stop()
	s := Sample{Sent: time.Now()}
	if _, err := c.Write(wire.Append(nil, &wire.Observe{})); err != nil {
		return fail(err)
	}
	f, err := wire.Read(c)
	s.Received = time.Now()
	if err != nil {
		return fail(classify(ctx, err))
	}
	switch f := f.(type) {
	case *wire.Observed:
		s.Server = f.Time
		return f.From, s, nil
	case *wire.Refuse:
		return fail(f.Err())
	}
	return fail(fmt.Errorf("%w: it answered with %v", wire.ErrType, f.Type()))
}

// Answer reads one question from c and answers it. The caller then keeps c until the other end
// closes it, or for as long as it can afford to: NATs forget closed connections.
func Answer(ctx context.Context, c net.Conn) error {
	stop := bound(ctx, c)
	defer stop()
	f, err := wire.Read(c)
	if err != nil {
		return fmt.Errorf("question from %v: %w", c.RemoteAddr(), classify(ctx, err))
	}
	if _, ok := f.(*wire.Observe); !ok {
		return fmt.Errorf("question from %v: %w: %v", c.RemoteAddr(), wire.ErrType, f.Type())
	}
	from, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return fmt.Errorf("answering a question: the peer's address: %w", err)
	}
	from = netip.AddrPortFrom(from.Addr().Unmap().WithZone(""), from.Port())
	if _, err := c.Write(wire.Append(nil, &wire.Observed{From: from, Time: time.Now()})); err != nil {
		return fmt.Errorf("answering %v: %w", from, err)
	}
	return nil
}

// bound gives c a deadline of askPatience or ctx's end; the returned function removes it.
func bound(ctx context.Context, c net.Conn) (lift func()) {
	c.SetDeadline(time.Now().Add(askPatience))
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	return func() {
		if stop() {
			c.SetDeadline(time.Time{})
		}
	}
}

// classify converts a read error to one that callers can distinguish.
func classify(ctx context.Context, err error) error {
	var timeout net.Error
	switch {
	case ctx.Err() == context.Canceled:
		return context.Canceled
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("%w: no answer", overlay.ErrTimeout)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w: it closed the connection; does it know the observe frame?", overlay.ErrRefused)
	}
	return err
}
