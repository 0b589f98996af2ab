package proxy

import (
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/carrier/encap"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/pki/ca"
	"github.com/isthmus-grid/isthmus/wire"
)

// credentials returns the credentials of proxy p1 of a new grid.
func credentials(t *testing.T) *control.Credentials {
	t.Helper()
	grid, _, err := ca.New("test", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := grid.Issue(control.Identity{Role: control.RoleProxy, Name: "p1"}, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	creds, err := control.NewCredentials(cert, key, grid.CertPEM())
	if err != nil {
		t.Fatal(err)
	}
	return creds
}

// An end inside TLS or a WebSocket is linked to a plain one: the data is the same, each direction
// ends separately, and the log names the forms.
func TestLinkInsideOfTLS(t *testing.T) {
	creds := credentials(t)
	r := start(t, Settings{TLS: creds.DataServer})
	for _, only := range []struct {
		tls   bool
		words string
	}{{true, "form=TLS"}, {false, "form=plain"}} {
		dialer := encap.NewDialer(func() *tls.Config { return creds.DataClient(control.RoleProxy) })
		inside, _, err := dialer.Dial(t.Context(), r.addr, encap.Route{OnlyTLS: only.tls})
		if err != nil {
			t.Fatal(err)
		}
		defer inside.Close()
		inside.SetDeadline(time.Now().Add(30 * time.Second))
		pair := r.tickets()
		inside.Write(wire.Append(nil, pair[0]))
		plain := r.show(pair[1])
		want := make([]byte, 1<<20)
		rand.Read(want)
		for _, way := range [][2]carrier.Stream{{inside, plain}, {plain, inside}} {
			var sent sync.WaitGroup
			sent.Go(func() { way[0].Write(want); way[0].CloseWrite() })
			got, err := io.ReadAll(way[1])
			sent.Wait()
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: %d bytes of %d, %v", only.words, len(got), len(want), err)
			}
		}
		r.until("the link to end", func(st Status) bool { return st.Links == 0 })
		if !bytes.Contains([]byte(r.log.String()), []byte(only.words)) {
			t.Errorf("the log does not say %s:\n%s", only.words, r.log)
		}
	}
}

// A link that is cut is cut off inside TLS, too: neither end takes it for complete.
func TestCutInsideOfTLS(t *testing.T) {
	creds := credentials(t)
	r := start(t, Settings{TLS: creds.DataServer})
	dialer := encap.NewDialer(func() *tls.Config { return creds.DataClient(control.RoleProxy) })
	inside, _, err := dialer.Dial(t.Context(), r.addr, encap.Route{OnlyTLS: true})
	if err != nil {
		t.Fatal(err)
	}
	defer inside.Close()
	inside.SetDeadline(time.Now().Add(30 * time.Second))
	pair := r.tickets()
	inside.Write(wire.Append(nil, pair[0]))
	plain := r.show(pair[1])
	r.until("the link", func(st Status) bool { return st.Links == 1 })
	plain.SetLinger(0)
	plain.Close()
	if n, err := inside.Read(make([]byte, 1)); err == nil || err == io.EOF {
		t.Errorf("a reset of the other end came as %d, %v", n, err)
	}
}

// A connection that begins a handshake and does not finish it counts as one without a ticket: it
// takes a place, for the permitted time, and is refused with the reason.
func TestUnfinishedHandshakes(t *testing.T) {
	creds := credentials(t)
	begun := []string{"\x16", "\x16\x03\x01\x02\x00", "G"}
	full := start(t, Settings{TLS: creds.DataServer, TicketTime: time.Hour, Limits: Limits{Handshakes: 4, PerSource: 3}})
	for _, b := range begun {
		full.dial([]byte(b))
	}
	full.until("three to wait", func(Status) bool { return full.half.Stats().Used == 3 })
	full.dial([]byte("\x16")) // one more from the same source
	full.until("one to lose its place", func(st Status) bool { return st.Refused[TooManyHandshakes] == 1 })

	r := start(t, Settings{TLS: creds.DataServer, TicketTime: 30 * time.Millisecond})
	for _, b := range begun {
		r.dial([]byte(b))
	}
	r.until("all to be refused", func(st Status) bool {
		return st.Refused[NoTicket]+st.Refused[NoHandshake] == 3 && r.half.Stats().Used == 0
	})
	r.dial([]byte("\x16\x03\x01\x00\x05hello"))
	r.until("nonsense to be refused", func(st Status) bool { return st.Refused[NoHandshake] >= 1 })
	c, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(netip.MustParseAddrPort(r.addr)))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(30 * time.Second))
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: relay\r\n\r\n")
	if got, _ := io.ReadAll(c); !bytes.HasPrefix(got, []byte("HTTP/1.1 400 ")) {
		t.Errorf("a browser was told %q", got)
	}
}
