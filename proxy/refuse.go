package proxy

import (
	"fmt"
	"io"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/wire"
)

// Reason is why a connection was refused, as the name under which it is counted. The reasons of
// package ticket are reasons too.
type Reason string

// Reasons in addition to those of package ticket.
const (
	NoTicket          Reason = "no-ticket"           // none arrived in time, or the peer left
	NotATicket        Reason = "not-a-ticket"        // something else arrived
	NoHandshake       Reason = "no-handshake"        // a TLS or WebSocket handshake was begun and failed
	TooManyHandshakes Reason = "too-many-handshakes" // Limits.Handshakes
	TooManyWaiting    Reason = "too-many-waiting"    // Limits.Waiting
	TooManyLinks      Reason = "too-many-links"      // Limits.Links
	OverQuota         Reason = "over-quota"          // Settings.Quota
	OverPolicy        Reason = "over-policy"         // a site's policy allows the owner no more
	NoPartner         Reason = "no-partner"          // the other end did not connect
	Mismatch          Reason = "ticket-mismatch"     // the two tickets of a link differ
	NoAudit           Reason = "no-audit"            // the audit log cannot be written, but is required
	Revoked           Reason = "revoked"             // the node, site or user of an end was revoked after the ticket was issued, or the proxy itself was
	Stopping          Reason = "stopping"            // the proxy is ending
)

// refusalError is why a connection is refused, and what is sent to its peer.
type refusalError struct {
	reason Reason
	code   wire.Code
	text   string
}

func (e *refusalError) Error() string { return e.text }

func refusal(r Reason, c wire.Code, format string, args ...any) error {
	return &refusalError{r, c, fmt.Sprintf(format, args...)}
}

func stopping() error { return refusal(Stopping, wire.CodeRefused, "the proxy is stopping") }

// For how long, and for how many unwanted bytes, a refused connection is kept open so that the
// refusal is not lost.
const (
	goodbyeTime  = time.Second
	goodbyeBytes = 256 << 10
)

// refuse sends the peer the reason and closes the connection.
func (s *Server) refuse(e *end, err error) {
	r := err.(*refusalError)
	s.count.refuse(r.reason)
	attrs := []any{"from", e.conn.RemoteAddr().String(), "reason", string(r.reason), "text", r.text}
	if t := e.ticket; t != nil {
		attrs = append(attrs, "job", string(t.Job), "asker", t.Asker, "target", t.Target, "end", t.End)
	}
	s.log.Warn("refused", attrs...)
	s.auditRefusal(e, r)
	if r.reason == NoHandshake {
		e.conn.Close() // the TLS or HTTP handshake has reported it
		return
	}
	sayGoodbye(e.conn, &wire.Refuse{Code: r.code, By: "proxy " + s.set.Name, Text: r.text})
}

// sayGoodbye sends the refusal and closes. Closing while bytes of the peer are unread would send a
// reset, which destroys what the peer has not read yet; so those bytes are read first.
func sayGoodbye(c carrier.Stream, r *wire.Refuse) {
	defer c.Close()
	c.SetDeadline(time.Now().Add(goodbyeTime))
	if _, err := c.Write(wire.Append(nil, r)); err != nil {
		return // the peer is gone
	}
	c.CloseWrite()
	io.Copy(io.Discard, io.LimitReader(c, goodbyeBytes))
}
