package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
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
// job's name, so that the remains of a dead job are not mistaken for this one's. When it leaves, the
// empty file rank-N-D.left takes the socket's place, until the rank starts again or the last process of
// the job leaves, which also removes the sockets of killed ones. It starts no goroutine.
type Directory struct {
	dir     string
	process overlay.ProcessName
	ln      *net.UnixListener

	// again means that a process of this rank was here before. Those that left may have been of an
	// earlier job with the same key, and start again in this one.
	again bool

	finalized atomic.Bool
}

var _ overlay.Connector = (*Directory)(nil)

// Listen creates dir if needed (mode 0700) and listens there as process. It refuses a directory
// that others can enter, and a rank that a live process has; it replaces the socket of a dead one,
// and the mark of one that left.
func Listen(dir string, process overlay.ProcessName) (*Directory, error) {
	d := &Directory{dir: dir, process: process}
	if err := d.listen(); err != nil {
		return nil, fmt.Errorf("local.Listen: %v: %w", process, err)
	}
	switch err := os.Remove(d.mark(process.Rank)); {
	case err == nil:
		d.again = true
	case !errors.Is(err, fs.ErrNotExist):
		d.ln.Close()
		return nil, fmt.Errorf("local.Listen: %v: %w", process, err)
	}
	return d, nil
}

// HasRoom reports whether the paths of sockets in dir can be short enough for the system.
func HasRoom(dir string) bool { return len(dir)+len("/rank-4294967295-01234567.sock") <= maxSocketPath }

// MakeFolder creates dir if needed (mode 0700), and refuses one that others can enter.
func MakeFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() || info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("%w: %s can be entered by others (mode %04o): run chmod 700 %[2]s", overlay.ErrForbidden, dir, info.Mode().Perm())
	}
	return nil
}

func (d *Directory) listen() error {
	err := MakeFolder(d.dir)
	if err != nil {
		return err
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
	d.again = true
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	d.ln, err = net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	return err
}

func (d *Directory) socket(rank uint32) string { return d.file(rank, "sock") }

// mark is the file that says that a rank has left.
func (d *Directory) mark(rank uint32) string { return d.file(rank, "left") }

func (d *Directory) file(rank uint32, kind string) string {
	return filepath.Join(d.dir, fmt.Sprintf("rank-%d%s", rank, d.suffix(kind)))
}

// suffix ends the names of a kind of files of this job.
func (d *Directory) suffix(kind string) string {
	const digits = 8
	job := string(d.process.Job)
	return fmt.Sprintf("-%s.%s", job[max(0, len(job)-digits):], kind)
}

// hasLeft reports whether a rank has left this job, as far as that can be determined.
func (d *Directory) hasLeft(rank uint32) bool {
	if d.again {
		return false
	}
	_, err := os.Lstat(d.mark(rank))
	return err == nil
}

// Dial implements overlay.Connector. A process that has left is overlay.ErrLeft at once,
// unless one of this process's own rank was here before: then it may start again, and Dial waits for it. A
// killed process leaves its socket behind, without a listener: that is overlay.ErrEnded after a while.
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
		case errors.Is(err, fs.ErrNotExist) && d.hasLeft(peer.Rank):
			return overlay.Carrier{}, fmt.Errorf("local.Dial: %v: %w, as %s says", peer, overlay.ErrLeft, d.mark(peer.Rank))
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

// Finalized says that the process has said goodbye to all that it had links with: Close then marks it as one
// that has left. Without that its socket stays, and to others it is like one that was killed.
func (d *Directory) Finalized() { d.finalized.Store(true) }

// Close implements overlay.Connector. If the process is Finalized, it replaces the socket by a mark. The last
// process of the job removes the marks, and the sockets without a listener.
func (d *Directory) Close() error {
	d.ln.SetUnlinkOnClose(d.finalized.Load())
	err := d.ln.Close()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	if err := errors.Join(err, d.leave()); err != nil {
		return fmt.Errorf("local.Close: %w", err)
	}
	return nil
}

// leave writes the mark before it looks for others, so that of processes that leave at once the last one
// to look finds all marks.
func (d *Directory) leave() error {
	var err error
	if d.finalized.Load() {
		err = os.WriteFile(d.mark(d.process.Rank), nil, 0o600)
	}
	entries, readErr := os.ReadDir(d.dir)
	if errors.Is(readErr, fs.ErrNotExist) { // removed with all that was in it
		return nil
	}
	if err = errors.Join(err, readErr); err != nil {
		return err
	}
	var remains []string
	for _, e := range entries {
		name := filepath.Join(d.dir, e.Name())
		switch {
		case strings.HasSuffix(name, d.suffix("sock")) && isServed(name):
			return nil
		case strings.HasSuffix(name, d.suffix("sock")), strings.HasSuffix(name, d.suffix("left")):
			remains = append(remains, name)
		}
	}
	for _, name := range remains {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// isServed reports whether a live process has a stream socket of this name. It makes no connection to it: for a
// socket of another type the system says whether there is one, and refuses.
func isServed(name string) bool {
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"})
	if err == nil {
		c.Close()
	}
	return !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, fs.ErrNotExist)
}
