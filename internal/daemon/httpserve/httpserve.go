// Package httpserve serves the plain HTTP pages of a daemon, its metrics and its status page:
// read-only, with bounds on the resources of clients. It knows nothing of the content, and does not
// authenticate clients: the address that the pages listen on is their only protection.
package httpserve

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/netutil"

	"github.com/isthmus-grid/isthmus/internal/daemon"
	"github.com/isthmus-grid/isthmus/internal/limit/accept"
)

// Bounds on clients. Connections over maxConns wait in the listener's queue until another ends; a
// response that is not read within writeTime is cut off.
const (
	maxConns   = 64
	headerTime = 5 * time.Second
	writeTime  = 30 * time.Second
	idleTime   = 2 * time.Minute
	maxHeader  = 16 << 10
)

// A Server serves one handler on one address. A nil *Server is one that is not configured: all of
// its methods do nothing.
type Server struct {
	name string
	ln   net.Listener
	http http.Server
	log  *slog.Logger
}

// Open listens on an address for handler. The name is that of the setting, for errors, the log and
// [Server.Facts]. An invalid address means that the page is not configured: the Server is nil.
// Requests are served from Start on.
//
// A successor of the process inherits the socket (daemon.Socket): on a handover, stop the Server,
// because otherwise clients get pages of either process.
func Open(ctx context.Context, name string, at netip.AddrPort, handler http.Handler, log *slog.Logger) (*Server, error) {
	if !at.IsValid() {
		return nil, nil
	}
	ln, err := daemon.Socket(ctx, name+" "+at.String(), func() (*net.TCPListener, error) {
		return net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w; choose another port, or omit the setting", name, err)
	}
	return &Server{name: name, ln: ln, log: log, http: http.Server{
		Handler:           readOnly(handler),
		ReadHeaderTimeout: headerTime, ReadTimeout: headerTime, WriteTimeout: writeTime, IdleTimeout: idleTime,
		MaxHeaderBytes: maxHeader,
		ErrorLog:       slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}}, nil
}

// readOnly refuses every method except GET and HEAD, whatever the handler.
func readOnly(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "this page can only be read", http.StatusMethodNotAllowed)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// NamedHere returns a handler that refuses requests whose Host is a name that somebody elsewhere could
// have given this host's address: a page of theirs in a browser here would then read what h answers
// (DNS rebinding). Addresses, names without a dot and this host's own are no such names.
func NamedHere(h http.Handler) http.Handler {
	own, _ := os.Hostname()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isNamedHere(r.Host, own) {
			http.Error(w, "this page is not known by that name: use this host's address, or its name as the command hostname prints it", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// isNamedHere is the decision of NamedHere about the Host of a request to the host of the name own.
func isNamedHere(host, own string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil || !strings.Contains(host, ".") || strings.EqualFold(strings.TrimSuffix(host, "."), own)
}

// Start serves in a goroutine of its own until ctx ends or the returned function is called, which
// waits for that goroutine and may be called again. A listener that fails meanwhile is only logged:
// a page is not essential to a daemon.
func (s *Server) Start(ctx context.Context) (stop func()) {
	if s == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	s.http.BaseContext = func(net.Listener) context.Context { return ctx }
	s.log.Info("serving a page", "setting", s.name, "listen", s.ln.Addr().String())
	var own sync.WaitGroup
	own.Go(func() {
		<-ctx.Done()
		s.http.Close()
	})
	own.Go(func() {
		if err := s.http.Serve(netutil.LimitListener(accept.Patient(ctx, s.log, s.ln), maxConns)); ctx.Err() == nil {
			s.log.Error("a page is no longer served", "setting", s.name, "error", err)
		}
	})
	return func() { cancel(); own.Wait() }
}

// Facts returns the daemon's facts for its ready line: "metrics_listen=ADDRESS", or nothing.
func (s *Server) Facts() []string {
	if s == nil {
		return nil
	}
	return []string{s.name + "=" + s.ln.Addr().String()}
}
