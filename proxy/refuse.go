package proxy

import (
	"fmt"
	"io"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/wire"
)

// Reason is why a connection was refused, under the name by which it is
// counted. The reasons of package ticket are reasons too.
type Reason string

// The reasons that the proxy adds.
const (
	NoTicket          Reason = "no-ticket"           // none came in time, or the peer left
	NotATicket        Reason = "not-a-ticket"        // something else came
	NoHandshake       Reason = "no-handshake"        // TLS or a WebSocket was begun, and did not come about
	TooManyHandshakes Reason = "too-many-handshakes" // Limits.Handshakes
	TooManyWaiting    Reason = "too-many-waiting"    // Limits.Waiting
	TooManyLinks      Reason = "too-many-links"      // Limits.Links
	OverQuota         Reason = "over-quota"          // Settings.Quota
	OverPolicy        Reason = "over-policy"         // a site's policy allows its owner no more
	NoPartner         Reason = "no-partner"          // the other end did not come
	Mismatch          Reason = "ticket-mismatch"     // the two tickets of a link differ
	NoAudit           Reason = "no-audit"            // the audit log cannot be written, and must be
	Revoked           Reason = "revoked"             // the node, site or user of an end was, since the ticket was issued, or the proxy itself
	Stopping          Reason = "stopping"            // the proxy ends
)

// refusalError is why a connection is refused, and what its peer is told.
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

// Bounds of a goodbye: for how long, and for how many bytes that nobody
// wants, a refused connection is kept so that the refusal is not lost.
const (
	goodbyeTime  = time.Second
	goodbyeBytes = 256 << 10
)

// refuse tells the peer why and closes the connection.
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
		e.conn.Close() // it was told in the words of TLS or HTTP
		return
	}
	sayGoodbye(e.conn, &wire.Refuse{Code: r.code, By: "proxy " + s.set.Name, Text: r.text})
}

// sayGoodbye sends the refusal and closes. To close while bytes of the peer
// are unread would send a reset, which destroys what the peer has not read
// yet; so those bytes are read first.
func sayGoodbye(c carrier.Stream, r *wire.Refuse) {
	defer c.Close()
	c.SetDeadline(time.Now().Add(goodbyeTime))
	if _, err := c.Write(wire.Append(nil, r)); err != nil {
		return // the peer is gone
	}
	c.CloseWrite()
	io.Copy(io.Discard, io.LimitReader(c, goodbyeBytes))
}
