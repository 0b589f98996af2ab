package relay

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/daemon"
	"github.com/isthmus-grid/isthmus/internal/pki/ticket"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/proxy"
)

// Options say how to measure. Zero fields take the values of Run's comment.
type Options struct {
	// Self is the command line that runs this program as a part, less the
	// part's name. Element 0 is a path.
	Self []string

	Repeat int           // of each comparison
	Stream time.Duration // each stream
	Trips  int           // round trips of each latency measurement
	JSON   bool
}

// The parts run by other processes of the same program.
const (
	partServer = "server"
	partProxy  = "proxy"
)

const proxyName = "bench"

// Part runs a part until the standard input ends. It listens on the address in the first line of
// input, prints the resulting one, and for a proxy reads its ticket key, in hexadecimal, from the
// second word.
func Part(ctx context.Context, name string, in io.Reader, out io.Writer) error {
	var at, key string
	if _, err := fmt.Fscanln(in, &at, &key); err != nil {
		return fmt.Errorf("part %s: first line of input: %w", name, err)
	}
	addr, err := netip.ParseAddrPort(at)
	if err != nil {
		return err
	}
	ln, err := carrier.ListenIn(ctx, addr.Addr(), overlay.Ports{})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // ends with its input, which the parent closes, or with the process
		io.Copy(io.Discard, in)
		cancel()
	}()
	fmt.Fprintln(out, ln.Addr())
	switch name {
	case partServer:
		return serve(ctx, ln)
	case partProxy:
		return serveProxy(ctx, ln, key)
	}
	return fmt.Errorf("there is no part %q", name)
}

func serve(ctx context.Context, ln *net.TCPListener) error {
	defer context.AfterFunc(ctx, func() { ln.Close() })()
	for {
		c, err := ln.AcceptTCP()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		go func() { // ends with its client, or with the process
			if err := serveConn(c); err != nil && err != io.EOF {
				fmt.Fprintln(os.Stderr, "bench relay: server:", err)
			}
		}()
	}
}

// serveProxy runs the daemon with its default configuration, without a broker.
func serveProxy(ctx context.Context, ln *net.TCPListener, key string) error {
	b, err := hex.DecodeString(strings.TrimSpace(key))
	if err != nil {
		return err
	}
	set := daemon.Defaults[proxy.Config]().Settings()
	set.Name = proxyName
	if set.Key, err = ticket.ParseKey(b); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	s := proxy.New(set, log)
	err = s.Serve(ctx, ln)
	if st := s.Status(); st.Copied != 0 {
		return fmt.Errorf("the proxy copied %d of %d bytes through its memory", st.Copied, st.Bytes)
	}
	return err
}
