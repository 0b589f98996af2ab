package proxy

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/pki/ticket"
	"github.com/isthmus-grid/isthmus/internal/testkit"
	"github.com/isthmus-grid/isthmus/wire"
)

// Whatever is wrong with what a client presents, it gets the reason, and the proxy counts it under
// one.
func TestRefusals(t *testing.T) {
	foreign := ticket.NewKey()
	for name, tc := range map[string]struct {
		bytes  func(r *rig) []byte
		code   wire.Code
		text   string
		reason Reason
	}{
		"expired": {func(r *rig) []byte {
			return wire.Append(nil, r.tickets(func(t *wire.Ticket) { t.Expires = uint64(time.Now().Add(-time.Hour).UnixMilli()) })[0])
		}, wire.CodeForbidden, "the ticket expired 1h0m0s ago: it was delayed, or the clocks of broker and proxy differ by at least 1h0m0s: set them by NTP", Reason(ticket.Expired)},
		"forged": {func(r *rig) []byte {
			forged := r.tickets()[0]
			forged.Limit = 1 << 50
			return wire.Append(nil, forged)
		}, wire.CodeForbidden, "the ticket is forged or issued under another key", Reason(ticket.Forged)},
		"under another key": {func(r *rig) []byte {
			other := ticket.Issue(foreign, *r.tickets()[1])
			return wire.Append(nil, &other)
		}, wire.CodeForbidden, "the ticket is forged or issued under another key", Reason(ticket.Forged)},
		"for another proxy": {func(r *rig) []byte {
			return wire.Append(nil, r.tickets(func(t *wire.Ticket) { t.Proxy = "p2" })[0])
		}, wire.CodeForbidden, "the ticket is for proxy p2, this is p1", Reason(ticket.Foreign)},
		"another frame": {func(r *rig) []byte {
			return wire.Append(nil, &wire.Proof{})
		}, wire.CodeMalformed, "the first frame must be a ticket, this is a proof frame", NotATicket},
		"another version": {func(r *rig) []byte {
			b := wire.Append(nil, r.tickets()[0])
			b[2] = 9
			return b
		}, wire.CodeVersion, "unknown protocol version: the peer speaks version 9, this side 1", NotATicket},
		"a lying length": {func(r *rig) []byte {
			b := wire.Append(nil, r.tickets()[0])
			b[4], b[5] = 0xff, 0xff
			return b
		}, wire.CodeMalformed, "malformed frame: ticket says it has 65535 bytes, at most 4096 are allowed", NotATicket},
		"HTTP": {func(r *rig) []byte {
			return []byte("POST / HTTP/1.1\r\nHost: relay\r\n\r\n")
		}, wire.CodeMalformed, "not an Isthmus frame: it starts with 50 4f", NotATicket},
		"a ticket with payload behind": {func(r *rig) []byte {
			return append(wire.Append(nil, r.tickets(func(t *wire.Ticket) { t.Proxy = "p2" })[0]), make([]byte, 100_000)...)
		}, wire.CodeForbidden, "the ticket is for proxy p2, this is p1", Reason(ticket.Foreign)},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, Settings{})
			no := testkit.Refused(r.t, r.dial(tc.bytes(r)))
			if no.Code != tc.code || no.By != "proxy p1" || no.Text != tc.text {
				t.Errorf("refused with %+v, want code %d, %q", no, tc.code, tc.text)
			}
			if st := r.Status(); st.Refused[tc.reason] != 1 || len(st.Refused) != 1 || st.Joined != 0 {
				t.Errorf("counted %+v, want one %s", st, tc.reason)
			}
		})
	}
}

func TestReplayedTicket(t *testing.T) {
	r := start(t, Settings{})
	pair := r.tickets()
	asker := r.show(pair[0])
	r.until("the first end to wait", func(st Status) bool { return st.Waiting == 1 })
	if no := testkit.Refused(r.t, r.show(pair[0])); no.Code != wire.CodeForbidden || no.Text != "the ticket was used before" {
		t.Errorf("while the first user waits: %+v", no)
	}
	target := r.show(pair[1])
	echoes(t, asker, target)
	for _, again := range pair {
		if no := testkit.Refused(r.t, r.show(again)); no.Text != "the ticket was used before" {
			t.Errorf("while the link is up: %+v", no)
		}
	}
	echoes(t, asker, target) // and the link was not disturbed
	asker.Close()
	target.Close()
	r.until("the link's end", func(st Status) bool { return st.Links == 0 })
	if no := testkit.Refused(r.t, r.show(pair[1])); no.Text != "the ticket was used before" {
		t.Errorf("after the link's end: %+v", no)
	}
}

// Tickets that are each valid but not of one pair do not join.
func TestMismatchedTickets(t *testing.T) {
	r := start(t, Settings{})
	one := r.tickets()
	other := r.tickets(func(t *wire.Ticket) { t.Link, t.Target = one[0].Link, 6 })
	waiting := r.show(one[0])
	r.until("the first end to wait", func(st Status) bool { return st.Waiting == 1 })
	no := testkit.Refused(r.t, r.show(other[1]))
	if no.Code != wire.CodeForbidden || !strings.Contains(no.Text, "do not belong together") {
		t.Errorf("refused with %+v", no)
	}
	// End 1 of the link is used up, so the first end waits in vain; what counts is that it is still
	// there.
	if st := r.Status(); st.Waiting != 1 || st.Refused[Mismatch] != 1 {
		t.Errorf("%+v", st)
	}
	waiting.Close()
}

func TestSilentClient(t *testing.T) {
	r := start(t, Settings{TicketTime: 30 * time.Millisecond})
	for name, b := range map[string][]byte{
		"nothing":       nil,
		"half a ticket": wire.Append(nil, r.tickets()[0])[:40],
	} {
		if no := testkit.Refused(r.t, r.dial(b)); no.Code != wire.CodeTimeout || no.Text != "no ticket within 30ms" {
			t.Errorf("%s: %+v", name, no)
		}
	}
	if st := r.until("both to leave", func(st Status) bool { return st.Handshakes == 0 }); st.Refused[NoTicket] != 2 {
		t.Errorf("%+v", st)
	}
}

// A client that leaves in the middle of its ticket costs nothing.
func TestClientLeaves(t *testing.T) {
	r := start(t, Settings{})
	c := r.dial(wire.Append(nil, r.tickets()[0])[:40])
	c.CloseWrite()
	if no := testkit.Refused(r.t, c); no.Text != "the connection ended before a ticket" {
		t.Errorf("%+v", no)
	}
	r.dial(nil).Close()
	r.until("both to be counted", func(st Status) bool { return st.Refused[NoTicket] == 2 && st.Handshakes == 0 })
}

func TestLimitOfTicket(t *testing.T) {
	r := start(t, Settings{})
	asker, target := r.link(func(t *wire.Ticket) { t.Limit = 100 })
	asker.Write(make([]byte, 60))
	io.ReadFull(target, make([]byte, 60))
	target.Write(make([]byte, 60))
	n, err := io.ReadFull(asker, make([]byte, 60))
	if err == nil || n > 40 {
		t.Errorf("%d bytes over a limit of 100 after 60, %v", n, err)
	}
	st := r.until("the link's end", func(st Status) bool { return st.Links == 0 })
	if st.Broken != 1 || st.Bytes != 100 || !strings.Contains(r.log.String(), "the link's byte limit is used up") {
		t.Errorf("%+v\n%s", st, r.log)
	}
}
