//go:build system

package attack

import (
	"encoding/json"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
	"github.com/isthmus-grid/isthmus/wire"
)

// garbage is input that no daemon understands, with the daemons' answers.
var garbage = []struct {
	name  string
	bytes string
	code  wire.Code
	want  string
}{
	{"a lying length", "IS\x01\x01\xff\xff", wire.CodeMalformed, "malformed frame: intro says it has 65535 bytes, at most 4096 are allowed"},
	{"a length that hides the end", "IS\x01\x01\x00\x01\x01", wire.CodeMalformed, "malformed frame: intro: "},
	{"another version", "IS\x02\x01\x00\x00", wire.CodeVersion, "unknown protocol version: the peer speaks version 2, this side 1"},
	{"another protocol", "SSH-2.0-OpenSSH_9.2\r\n", wire.CodeMalformed, "not an Isthmus frame: it starts with 53 53"}, // HTTP is answered by the proxy
	{"an unknown frame", "IS\x01\x70\x00\x00", wire.CodeMalformed, "unexpected frame: type 0x70"},
}

// Whatever the first bytes on a connection, to any daemon: it is refused with a reason, nothing
// crashes, and others are not affected.
func TestBadFirstFrames(t *testing.T) {
	w := newWorld(t, labtest.SiteClosed+labtest.SiteOpen+labtest.SiteHidden, grid.Config{})
	flows := []*labtest.Flow{w.StartFlow(w.LinkPair("hidden/n1", "closed/n1")), w.StartFlow(w.LinkPair("closed/n1", "open/n1"))}
	helper := w.listening("helper open/n1")
	for _, port := range []struct {
		name, by string
		dial     func() (net.Conn, error)
	}{
		{"helper's data port", "helper open/n1", func() (net.Conn, error) {
			return w.Lab.Host("public/stranger").Dial(w.Ctx, "tcp", helper.String())
		}},
		{"frontal's data port", "frontal hidden", func() (net.Conn, error) {
			gateway := w.Daemon("frontal hidden").Host
			return w.Lab.Host("hidden/n1").Dial(w.Ctx, "tcp", netip.AddrPortFrom(gateway.Addr(), 7441).String())
		}},
		{"proxy", "proxy p1", func() (net.Conn, error) {
			return w.Lab.Host("public/stranger").Dial(w.Ctx, "tcp", netip.AddrPortFrom(w.Daemon("proxy p1").Host.Addr(), 443).String())
		}},
		{"helper's socket", "helper closed/n1", func() (net.Conn, error) {
			return new(net.Dialer).DialContext(w.Ctx, "unix", w.Socket("closed/n1"))
		}},
	} {
		for _, g := range garbage {
			t.Run(g.name+" to the "+port.name, func(t *testing.T) {
				w := w.sub(t)
				c, err := port.dial()
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				c.SetDeadline(time.Now().Add(30 * time.Second))
				if _, err := c.Write([]byte(g.bytes)); err != nil {
					t.Fatal(err)
				}
				if r := w.refusal(c); r.Code != g.code || !strings.Contains(r.Text, g.want) || r.By != port.by {
					t.Errorf("told %+v, want %q by %s", r, g.want, port.by)
				}
				w.AwaitLog(port.by, "refused", g.want)
			})
		}
	}
	for daemon, at := range map[string]netip.AddrPort{
		"broker":         netip.AddrPortFrom(w.Daemon("broker").Host.Addr(), 443),
		"frontal hidden": netip.AddrPortFrom(w.Daemon("frontal hidden").Host.Addr(), 7440),
	} {
		admin, err := w.Issue(asAdmin, time.Now().Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range garbage {
			t.Run(g.name+" to the control port of "+daemon, func(t *testing.T) {
				w := w.sub(t)
				if r := w.refusedByTLS(daemon, at, admin, []byte(g.bytes)); r.Code != g.code || !strings.Contains(r.Text, g.want) || !strings.HasPrefix(r.By, daemon) {
					t.Errorf("told %+v, want %q", r, g.want)
				}
				w.AwaitLog(daemon, "control session refused", g.want)
			})
		}
		t.Run("no TLS to the control port of "+daemon, func(t *testing.T) {
			w := w.sub(t)
			c, err := w.Daemon(daemon).Host.Dial(w.Ctx, "tcp", at.String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			c.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
			w.AwaitLog(daemon, "control session refused", "first record does not look like a TLS handshake")
		})
	}
	for _, d := range w.Daemons() {
		if !d.Running() {
			t.Errorf("%s is gone", d.Name)
		}
	}
	w.AwaitFlows("after all the garbage", flows)
	w.LinkPair("hidden/n1", "closed/n1")
	w.LinkPair("closed/n1", "open/n1")
}

// listening returns the address of a helper's data port, from its log.
func (w *world) listening(helper string) netip.AddrPort {
	w.T.Helper()
	for line := range strings.Lines(w.Daemon(helper).Log()) {
		var entry struct{ Msg, Listening string }
		if json.Unmarshal([]byte(line), &entry) == nil && entry.Msg == "joined" {
			if at, err := netip.ParseAddrPort(entry.Listening); err == nil {
				return at
			}
		}
	}
	w.T.Fatalf("%s does not say where it listens:\n%s", helper, w.Daemon(helper).Log())
	return netip.AddrPort{}
}
