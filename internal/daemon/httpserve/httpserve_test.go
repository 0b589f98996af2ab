package httpserve

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"testing"
)

func TestServer(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello") })
	s, err := Open(t.Context(), "page_listen", netip.MustParseAddrPort("127.0.0.1:0"), handler, log)
	if err != nil {
		t.Fatal(err)
	}
	stop := s.Start(context.Background())
	_, addr, _ := strings.Cut(s.Facts()[0], "=")
	for _, c := range []struct {
		method string
		status int
		body   string
	}{{"GET", 200, "hello"}, {"HEAD", 200, ""}, {"POST", 405, "this page can only be read\n"}, {"DELETE", 405, "this page can only be read\n"}} {
		req, _ := http.NewRequest(c.method, "http://"+addr+"/", nil)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != c.status || string(body) != c.body {
			t.Errorf("%s: %d %q, want %d %q", c.method, resp.StatusCode, body, c.status, c.body)
		}
	}
	if _, err := Open(t.Context(), "page_listen", netip.MustParseAddrPort(addr), handler, log); err == nil || !strings.HasPrefix(err.Error(), "page_listen: ") {
		t.Errorf("an address in use: %v", err)
	}
	stop()
	if _, err := http.Get("http://" + addr + "/"); err == nil {
		t.Error("it answers after its end")
	}
}

func TestServerThatNobodyWants(t *testing.T) {
	s, err := Open(t.Context(), "page_listen", netip.AddrPort{}, nil, nil)
	if s != nil || err != nil {
		t.Fatal(s, err)
	}
	s.Start(context.Background())()
	if f := s.Facts(); f != nil {
		t.Error(f)
	}
}

// A name that the owner of a domain gives this host's address opens nothing.
func TestNamesOfOthers(t *testing.T) {
	for host, want := range map[string]bool{
		"127.0.0.1:9444": true, "10.1.2.3": true, "[::1]:9444": true, "[fe80::1]": true, "localhost:9444": true, "n1": true, "n1:9444": true,
		"n1.example.org:9444": true, "N1.Example.org.": true, "evil.example.com:9444": false, "n1.evil.example.com": false, "127.0.0.1.evil.example.com:9444": false,
		"x.n1.example.org": false, "1.2.3": false,
	} {
		if got := isNamedHere(host, "n1.example.org"); got != want {
			t.Errorf("%s: %v", host, got)
		}
	}
}
