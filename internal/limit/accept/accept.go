// Package accept accepts connections from listeners: it continues during a shortage of system
// resources, and bounds the connections whose other end has not authenticated yet, for each source
// and in total.
//
// It knows no protocol: the server of a connection reports when its other end has authenticated.
package accept

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"syscall"
	"time"

	"github.com/isthmus-grid/isthmus/internal/sleep"
)

// How long accepting pauses during a shortage, and the interval of log lines about it.
const (
	shortage    = 100 * time.Millisecond
	shortageLog = 10 * time.Second
)

// IsShortage reports whether accepting failed because of a transient shortage of descriptors or
// memory, or because the other end has disconnected already, rather than because the listener is
// gone.
func IsShortage(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED} {
		if errors.Is(err, e) {
			return true
		}
	}
	ne := net.Error(nil)
	return errors.As(err, &ne) && ne.Timeout()
}

// Each calls serve with every connection that accept returns, until ctx ends or accept fails
// permanently. serve owns the connection and must not block. Each does not close the listener. The
// error is nil after ctx ended, else accept's.
func Each[C net.Conn](ctx context.Context, log *slog.Logger, at net.Addr, accept func() (C, error), serve func(C)) error {
	w := waiting{log: log, at: at}
	for {
		c, err := accept()
		switch {
		case err == nil:
			serve(c)
		case ctx.Err() != nil:
			return nil
		case !IsShortage(err):
			return err
		default:
			w.pause(ctx, err)
		}
	}
}

// Patient returns ln with an Accept that does not fail during a shortage of system resources, for
// servers that would end then. One goroutine at a time may call Accept.
func Patient(ctx context.Context, log *slog.Logger, ln net.Listener) net.Listener {
	return &patient{ln, ctx, waiting{log: log, at: ln.Addr()}}
}

type patient struct {
	net.Listener
	ctx context.Context
	w   waiting
}

func (p *patient) Accept() (net.Conn, error) {
	for {
		c, err := p.Listener.Accept()
		if err == nil || p.ctx.Err() != nil || !IsShortage(err) {
			return c, err
		}
		p.w.pause(p.ctx, err)
	}
}

// waiting waits for a shortage to pass.
type waiting struct {
	log    *slog.Logger
	at     net.Addr
	logged time.Time // time of the last log line
}

func (w *waiting) pause(ctx context.Context, why error) {
	if now := time.Now(); now.Sub(w.logged) >= shortageLog {
		w.logged = now
		w.log.Warn("cannot accept connections for now", "listener", w.at.String(), "error", why)
	}
	sleep.For(ctx, shortage)
}
