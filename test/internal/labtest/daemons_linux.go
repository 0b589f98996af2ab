package labtest

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/account/audit"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/pki/ca"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Scrape reads the metrics of a daemon of the grid from its own host, and
// returns the values of all series by the text before the value.
func (w *World) Scrape(daemon, port string) map[string]string {
	w.T.Helper()
	body := w.Fetch(daemon, "http://127.0.0.1:"+port+"/metrics")
	series := map[string]string{}
	for lines := bufio.NewScanner(strings.NewReader(body)); lines.Scan(); {
		if line := lines.Text(); !strings.HasPrefix(line, "#") {
			i := strings.LastIndex(line, " ")
			series[line[:i]] = line[i+1:]
		}
	}
	return series
}

// Fetch gets a page from a daemon's own host.
func (w *World) Fetch(daemon, url string) string {
	w.T.Helper()
	host := w.Daemon(daemon).Host
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return host.Dial(ctx, network, addr)
		},
	}}
	req, err := http.NewRequestWithContext(w.Ctx, http.MethodGet, url, nil)
	if err != nil {
		w.T.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		w.T.Fatalf("%s of %s: %v", url, daemon, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		w.T.Fatalf("%s of %s: %s, %v: %s", url, daemon, resp.Status, err, body)
	}
	return string(body)
}

// AwaitAudit waits for a record in the audit logs of a folder, and returns it.
func AwaitAudit(t *testing.T, ctx context.Context, folder, what string, is func(*audit.Record) bool) (found audit.Record) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	for {
		files, err := filepath.Glob(filepath.Join(folder, "*.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		ok := false
		if _, err := audit.Read(files, func(r *audit.Record) error {
			if is(r) {
				found, ok = *r, true
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if ok {
			return found
		}
		select {
		case <-ctx.Done():
			t.Fatalf("waited for the audit log in %s to tell of %s", folder, what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Visit opens a control session with a daemon, from a host, with any certificate of the grid.
func (w *World) Visit(t *testing.T, files ca.Files, daemon, from string, port uint16) *control.Session {
	t.Helper()
	e, cfg := w.Visitor(t, files, daemon, from, port)
	s, err := e.Dial(w.Ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// Visitor returns the endpoint that opens the session of Visit.
func (w *World) Visitor(t *testing.T, files ca.Files, daemon, from string, port uint16) (*control.Endpoint, control.DialConfig) {
	t.Helper()
	creds, err := control.LoadCredentials(files.Cert, files.Key, files.CA)
	if err != nil {
		t.Fatal(err)
	}
	role := control.RoleFrontal
	if daemon == "broker" {
		role = control.RoleBroker
	}
	e := control.NewEndpoint(creds, slog.New(slog.DiscardHandler), nil)
	t.Cleanup(e.Close)
	return e, control.DialConfig{
		Addr: netip.AddrPortFrom(w.Daemon(daemon).Host.Addr(), port).String(), Role: role, Visit: true,
		Dial: func(ctx context.Context, addr string) (net.Conn, error) {
			return w.Lab.Host(from).Dial(ctx, "tcp", addr)
		},
	}
}

// WantError compares an error with a text in which <job> stands for the job's id, and <time>,
// <duration> and <address> for any value; the rest is literal.
func WantError(t *testing.T, err error, class error, job overlay.JobID, text string) {
	t.Helper()
	if !IsError(err, class, job, text) {
		t.Errorf("got  %v\nwant %s (%v)", err, text, class)
	}
}

// IsError reports whether an error is of the class and has the text, as in WantError.
func IsError(err error, class error, job overlay.JobID, text string) bool {
	pattern := regexp.QuoteMeta(strings.ReplaceAll(text, "<job>", string(job)))
	pattern = strings.ReplaceAll(pattern, "<time>", `\d\d:\d\d:\d\d`)
	pattern = strings.ReplaceAll(pattern, "<duration>", `[0-9.]+m?s`)
	pattern = strings.ReplaceAll(pattern, "<address>", `[0-9.]+:[0-9]+`)
	return err != nil && regexp.MustCompile("^"+pattern+"$").MatchString(err.Error()) && errors.Is(err, class)
}
