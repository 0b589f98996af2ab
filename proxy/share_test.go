package proxy

import (
	"io"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/carrier/encap"
	"github.com/isthmus-grid/isthmus/wire"
)

// sharing returns a Dialer after its first relays to a proxy, the last of which shares a connection,
// and its connections.
func (r *rig) sharing() (d *encap.Dialer, shared carrier.Stream) {
	d = encap.NewDialer(nil)
	r.t.Cleanup(d.Close)
	for {
		c, form, err := d.Dial(r.t.Context(), r.addr, encap.Route{NAT: true})
		if err != nil {
			r.t.Fatal(err)
		}
		if c.SetDeadline(time.Now().Add(30 * time.Second)); form == encap.Shared {
			return d, c
		}
		c.Close()
	}
}

// Relays that share a connection are links as others are, and the connection ends with the proxy.
func TestSharedConnection(t *testing.T) {
	r := start(t, Settings{})
	_, shared := r.sharing()
	pair := r.tickets()
	shared.Write(wire.Append(nil, pair[0]))
	plain := r.show(pair[1])
	for _, way := range [][2]carrier.Stream{{shared, plain}, {plain, shared}} {
		way[0].Write([]byte("a message"))
		way[0].CloseWrite()
		if got, err := io.ReadAll(way[1]); string(got) != "a message" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	}
	shared.Close()
	// Those that sharing closed may count as without a ticket until the proxy has seen that.
	r.until("the link to end, and nothing to wait for a ticket", func(st Status) bool {
		return st.Links == 0 && st.Joined == 1 && st.Broken == 0 && st.Handshakes == 0
	})
}

// A stream with a bad ticket is refused alone, and a shared connection without any good one is closed
// when the time for tickets is over.
func TestSharedConnectionNeedsTicket(t *testing.T) {
	r := start(t, Settings{TicketTime: 500 * time.Millisecond})
	_, shared := r.sharing()
	bad := r.tickets(func(t *wire.Ticket) { t.Expires = 1 })
	shared.Write(wire.Append(nil, bad[0]))
	f, err := wire.Read(shared)
	if no, ok := f.(*wire.Refuse); !ok || err != nil {
		t.Errorf("a bad ticket: %v, %v", no, err)
	}
	r.until("it to be closed", func(st Status) bool { return st.Handshakes == 0 })
}
