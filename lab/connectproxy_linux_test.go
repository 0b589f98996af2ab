//go:build system

package lab

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"
)

// askProxy sends a request to a CONNECT proxy and returns what it receives until the proxy closes
// or sends nothing more.
func askProxy(from *Host, proxy netip.Addr, request string) string {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := from.Dial(ctx, "tcp", netip.AddrPortFrom(proxy, proxyPort).String())
	if err != nil {
		return outcome(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, request); err != nil {
		return outcome(err)
	}
	b, err := io.ReadAll(c)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return outcome(err)
	}
	return string(b)
}

func TestConnectProxy(t *testing.T) {
	l := up(t, Spec{IPv6: true, Sites: []Site{
		{Name: "site", Preset: "http-proxy", Nodes: Nodes(1)},
		{Name: "other", Preset: "open", Nodes: Nodes(1)},
		{Name: "pub", Preset: Public, Nodes: []string{"x"}},
	}})
	serveBanner(t, l.Host("pub/x"), 443, "pub")
	proxy := l.Host("site/proxy").Addr()
	for _, c := range []struct{ from, request, want string }{
		{"site/n1", "CONNECT " + l.Host("pub/x").Addr().String() + ":443 HTTP/1.1\r\n\r\n", "HTTP/1.1 200 Connection established\r\n\r\npub " + proxy.String()},
		{"site/n1", "CONNECT [" + l.Host("pub/x").Addr6().String() + "]:443 HTTP/1.1\r\n\r\n", "HTTP/1.1 200 Connection established\r\n\r\npub [" + l.Host("site/proxy").Addr6().String()},
		{"site/gw", "CONNECT x.pub:443 HTTP/1.1\r\n\r\n", "HTTP/1.1 200 Connection established\r\n\r\npub " + proxy.String()},
		{"site/n1", "CONNECT x.pub:80 HTTP/1.1\r\n\r\n", "HTTP/1.1 403 "},
		{"site/n1", "CONNECT y.pub:443 HTTP/1.1\r\n\r\n", "HTTP/1.1 502 "},
		{"site/n1", "CONNECT n1.other:443 HTTP/1.1\r\n\r\n", "HTTP/1.1 502 "},
		{"site/n1", "CONNECT x.pub HTTP/1.1\r\n\r\n", "HTTP/1.1 400 "},
		{"site/n1", "GET http://x.pub/ HTTP/1.1\r\nHost: x.pub\r\n\r\n", "HTTP/1.1 405 "},
		{"site/n1", "nonsense\r\n\r\n", "HTTP/1.1 400 "},
		{"site/n1", strings.Repeat("x", 2*proxyHeader), "HTTP/1.1 400 "},
		{"other/n1", "CONNECT x.pub:443 HTTP/1.1\r\n\r\n", "HTTP/1.1 403 "},
	} {
		if got := askProxy(l.Host(c.from), proxy, c.request); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s asks %.40q: %q, want %q", c.from, c.request, got, c.want)
		}
	}
	got := l.Proxy("site").Counts()
	got.Active = 0 // the last client may still be disconnecting
	if want := (ProxyCounts{Opened: 3, Refused: 7, Failed: 1}); got != want {
		t.Errorf("counts %+v, want %+v", got, want)
	}
}
