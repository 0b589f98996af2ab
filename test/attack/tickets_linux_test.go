//go:build system

package attack

import (
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/pki/ticket"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
	"github.com/isthmus-grid/isthmus/wire"
)

// fakeBroker acts as the broker for one proxy, to learn the key of its tickets.
type fakeBroker struct {
	controlpb.UnimplementedRelaysServer
	offers chan *controlpb.OfferRequest
}

func (b *fakeBroker) Offer(_ context.Context, r *controlpb.OfferRequest) (*controlpb.OfferResponse, error) {
	select {
	case b.offers <- r:
	default: // only the first is wanted
	}
	return &controlpb.OfferResponse{}, nil
}

// startProxy runs the real proxy with a fakeBroker, and returns where it listens, the key of its
// tickets and the folder of its audit log.
func startProxy(t *testing.T) (at string, key ticket.Key, trail string) {
	t.Helper()
	labtest.NeedLab(t)
	authority := newCA(t)
	creds, err := authority.Credentials(asBroker)
	if err != nil {
		t.Fatal(err)
	}
	k := &fakeBroker{offers: make(chan *controlpb.OfferRequest, 1)}
	broker := control.NewEndpoint(creds, slog.New(slog.DiscardHandler), func(r grpc.ServiceRegistrar) { controlpb.RegisterRelaysServer(r, k) })
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := broker.Serve(ctx, ln, nil, nil); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		stop()
		serving.Wait()
		broker.Close()
	})
	files, err := authority.Write(t.TempDir(), asProxy, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	settings := filepath.Join(t.TempDir(), "proxy.yaml")
	trail = t.TempDir()
	text := "listen: [127.0.0.1:0]\naudit: {folder: " + trail + "}\nbroker: " + ln.Addr().String() + "\ntls: {cert: " + files.Cert + ", key: " + files.Key + ", ca: " + files.CA + "}\n"
	if err := os.WriteFile(settings, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	at = labtest.StartDaemon(t, exec.Command(labtest.Program(t, "-proxy"), "--config", settings))
	select {
	case offer := <-k.offers:
		if key, err = ticket.ParseKey(offer.TicketKey); err != nil {
			t.Fatal(err)
		}
	case <-time.After(labtest.Patience):
		t.Fatalf("waited %v for the proxy's offer", labtest.Patience)
	}
	return at, key, trail
}

// show dials the proxy with a ticket.
func show(t *testing.T, at string, ticket wire.Ticket) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := c.Write(wire.Append(nil, &ticket)); err != nil {
		t.Fatal(err)
	}
	return c
}

// A proxy accepts a valid ticket once and refuses every other, with a reason, while the links it
// carries continue.
func TestTickets(t *testing.T) {
	at, key, trail := startProxy(t)
	claims := func(change func(*wire.Ticket)) wire.Ticket {
		c := wire.Ticket{
			Link: wire.ID{1}, Job: labtest.NewKey(t, "tickets").ID(), Asker: 0, Target: 1, Proxy: "px",
			Expires: uint64(time.Now().Add(time.Minute).UnixMilli()),
		}
		change(&c)
		return ticket.Issue(key, c)
	}
	good := claims(func(*wire.Ticket) {})
	other := good
	other.End = 1
	other = ticket.Issue(key, other)
	asker, target := show(t, at, good), show(t, at, other)
	pass := func(from, to net.Conn) {
		t.Helper()
		got := make([]byte, 4)
		if _, err := from.Write([]byte("ping")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(to, got); err != nil || string(got) != "ping" {
			t.Fatalf("%q, %v", got, err)
		}
	}
	pass(asker, target)

	forged := claims(func(c *wire.Ticket) { c.Link[0] = 2 })
	forged.Target = 7
	for _, tc := range []struct {
		name   string
		ticket wire.Ticket
		want   string // a regular expression, because time passes
		rule   string // in the audit log
	}{
		{"replayed by the asker", good, "the ticket was used before", "ticket-used"},
		{"replayed by the target", other, "the ticket was used before", "ticket-used"},
		{"forged", forged, "the ticket is forged or issued under another key", "ticket-forged"},
		{"of another proxy's key", ticket.Issue(ticket.NewKey(), good), "the ticket is forged or issued under another key", "ticket-forged"},
		{"expired", claims(func(c *wire.Ticket) { c.Expires = uint64(time.Now().Add(-time.Hour).UnixMilli()) }), `the ticket expired 1h\d+m\d+s ago: it was delayed, or the clocks of broker and proxy differ by at least 1h\d+m\d+s: set them by NTP`, "ticket-expired"},
		{"for another proxy", claims(func(c *wire.Ticket) { c.Proxy = "py" }), "the ticket is for proxy py, this is px", "ticket-foreign"},
		{"for ever", claims(func(c *wire.Ticket) { c.Expires = uint64(time.Now().Add(24 * time.Hour).UnixMilli()) }), `the ticket expires in 2\dh\d+m\d+s, at most 10m0s are allowed: the clocks of broker and proxy differ by at least 2\dh\d+m\d+s: set them by NTP`, "ticket-too-long"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			frame, err := wire.Read(show(t, at, tc.ticket))
			r, ok := frame.(*wire.Refuse)
			if err != nil || !ok || r.Code != wire.CodeForbidden || r.By != "proxy px" || !regexp.MustCompile("^"+tc.want+"$").MatchString(r.Text) {
				t.Errorf("got %+v, %v; want %q", frame, err, tc.want)
			}
			labtest.AwaitAudit(t, context.Background(), trail, tc.name, refusedFor(tc.rule, ""))
		})
	}
	pass(target, asker)
}
