package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// pollEvery is how often a Dial retries for a process that has not started, deadAfter how long a
// socket must be there without a listener before its process counts as dead (a job with the key of
// an earlier one finds the earlier job's sockets until its own processes have started), and
// maxSocketPath the longest path that fits a Unix socket's address on every supported system.
const (
	pollEvery     = 5 * time.Millisecond
	deadAfter     = 2 * time.Second
	maxSocketPath = 103
)

// Directory connects processes of one machine and one user without a daemon: rank N listens on the
// socket rank-N-D.sock in a directory that only its owner can enter, where D is the end of the
// job's name, so that the remains of a dead job are not mistaken for this one's. It starts no
// goroutine.
type Directory struct {
	dir     string
	process overlay.ProcessName
	ln      *net.UnixListener
}

var _ overlay.Connector = (*Directory)(nil)

// Listen creates dir if needed (mode 0700) and listens there as process. It refuses a directory
// that others can enter, and a rank that a live process has; it replaces the socket of a dead one.
func Listen(dir string, process overlay.ProcessName) (*Directory, error) {
	d := &Directory{dir: dir, process: process}
	if err := d.listen(); err != nil {
		return nil, fmt.Errorf("local.Listen: %v: %w", process, err)
	}
	return d, nil
}

func (d *Directory) listen() error {
	if err := os.MkdirAll(d.dir, 0o700); err != nil {
		return err
	}
	info, err := os.Stat(d.dir)
	if err != nil {
		return err
	}
	if !info.IsDir() || info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("%w: %s can be entered by others (mode %04o): run chmod 700 %[2]s", overlay.ErrForbidden, d.dir, info.Mode().Perm())
	}
	name := d.socket(d.process.Rank)
	if len(name) > maxSocketPath {
		return fmt.Errorf("socket path %s has %d bytes, at most %d are allowed: choose a shorter directory", name, len(name), maxSocketPath)
	}
	d.ln, err = net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	if !errors.Is(err, syscall.EADDRINUSE) {
		return err
	}
	if other, dialErr := net.Dial("unix", name); dialErr == nil {
		other.Close()
		return fmt.Errorf("%w: %s is served by another process", overlay.ErrDuplicate, name)
	}
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	d.ln, err = net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	return err
}

func (d *Directory) socket(rank uint32) string {
	const digits = 8
	job := string(d.process.Job)
	return filepath.Join(d.dir, fmt.Sprintf("rank-%d-%s.sock", rank, job[max(0, len(job)-digits):]))
}

// Dial implements overlay.Connector. A killed process leaves its socket behind, without a listener:
// that is overlay.ErrEnded after a while.
func (d *Directory) Dial(ctx context.Context, peer overlay.ProcessName, _ overlay.Ways) (overlay.Carrier, error) {
	start := time.Now()
	var deadSince time.Time // zero: it is alive
	name := d.socket(peer.Rank)
	var dialer net.Dialer
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		conn, err := dialer.DialContext(ctx, "unix", name)
		if err == nil {
			return overlay.Carrier{Conn: conn, Path: d.path(time.Since(start))}, nil
		}
		// Not there yet, there but dead (its successor may start), or its backlog is full: each may
		// be transient.
		passing := errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.EAGAIN)
		if !passing && ctx.Err() == nil {
			return overlay.Carrier{}, fmt.Errorf("local.Dial: %v: %w: %w", peer, overlay.ErrUnreachable, err)
		}
		switch {
		case !errors.Is(err, syscall.ECONNREFUSED):
			deadSince = time.Time{}
		case deadSince.IsZero():
			deadSince = time.Now()
		case time.Since(deadSince) > deadAfter:
			return overlay.Carrier{}, fmt.Errorf("local.Dial: %v: %w: no process has listened on %s for %v", peer, overlay.ErrEnded, name, deadAfter)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return overlay.Carrier{}, fmt.Errorf("local.Dial: %v: waited %v for a process to listen on %s: %w (%w)",
				peer, time.Since(start).Round(time.Millisecond), name, err, ctx.Err())
		}
	}
}

func (d *Directory) path(setup time.Duration) overlay.Path {
	return overlay.Path{Setup: setup, Reason: "same machine, no helper: sockets in " + d.dir}
}

// Accept implements overlay.Connector. One goroutine at a time.
func (d *Directory) Accept(ctx context.Context) (overlay.Carrier, error) {
	d.ln.SetDeadline(time.Time{})
	defer context.AfterFunc(ctx, func() { d.ln.SetDeadline(time.Unix(1, 0)) })()
	conn, err := d.ln.AcceptUnix()
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return overlay.Carrier{}, fmt.Errorf("local.Accept: %w", err)
	}
	return overlay.Carrier{Conn: conn, Path: d.path(0)}, nil
}

// Close implements overlay.Connector. It removes the socket.
func (d *Directory) Close() error {
	if err := d.ln.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("local.Close: %w", err)
	}
	return nil
}
