package daemon

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/isthmus-grid/isthmus/internal/ipc/local"
	"github.com/isthmus-grid/isthmus/internal/limit/accept"
)

// This file lets an admin on the daemon's host drain it and follow its progress, without knowing a
// process or a signal: through a Unix socket in the daemon's state folder.
//
//	isthmus drain                 the daemon
//	"drain\n" ------------------>  as SIGUSR1 does
//	<----------------------------  a Progress as a line of JSON, twice a second
//	<----------------------------  one with the state "ended"; end of the stream

// AdminSocketName is the socket's name in a state folder.
const AdminSocketName = "admin.sock"

const (
	maxVisitors = 16                     // concurrent clients; more are refused
	orderTime   = 5 * time.Second        // for a client to send its request
	tellEvery   = 500 * time.Millisecond // while the daemon drains
	tellTime    = 2 * time.Second        // for a client to read
	drainOrder  = "drain"
)

// The states of a Progress.
const (
	StateDraining = "draining" // it has work left, or is ending
	StateEnded    = "ended"
)

// Progress is the state of a draining daemon.
type Progress struct {
	Daemon string    `json:"daemon"` // "isthmus-proxy"
	PID    int       `json:"pid"`
	State  string    `json:"state"`
	What   string    `json:"what,omitempty"`  // the unit of its work, as in "links"; empty for a daemon with nothing to drain
	Left   int       `json:"left"`            // number of those left
	Until  time.Time `json:"until,omitzero"`  // when they are cut
	Cut    int       `json:"cut"`             // how many were cut
	Refuse string    `json:"error,omitempty"` // why the request is refused; the other fields are then invalid
}

// adminSocket serves the socket. A nil *adminSocket is a daemon without one.
type adminSocket struct {
	name    string
	path    string
	hooks   *Hooks
	log     *slog.Logger
	orders  chan<- os.Signal
	created bool // this process created the socket's file

	ctx    context.Context // ends with the daemon
	cancel context.CancelFunc
	ln     *net.UnixListener
	once   sync.Once
	work   sync.WaitGroup
	slots  chan struct{}
}

// openAdminSocket listens where the settings say, or in the state folder. A failure is an error
// only if the place was configured. A successor creates its socket in begin.
func openAdminSocket(l *life, orders chan<- os.Signal) (*adminSocket, error) {
	path, asked := l.adminSocket, l.adminSocket != ""
	if !asked {
		dir, _, _ := strings.Cut(os.Getenv("STATE_DIRECTORY"), ":")
		if dir == "" {
			return nil, nil
		}
		path = filepath.Join(dir, AdminSocketName)
	}
	d := &adminSocket{name: l.name, path: path, hooks: l.hooks, log: l.log, orders: orders, slots: make(chan struct{}, maxVisitors)}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	if l.hooks.inherited != nil {
		return d, nil
	}
	if err := d.listen(); err != nil {
		d.cancel()
		if asked {
			return nil, fmt.Errorf("admin_socket: %w", err)
		}
		l.log.Warn("isthmus drain cannot reach this daemon", "error", err)
		return nil, nil
	}
	return d, nil
}

// listen creates the socket. It is renamed into place after its mode is set, and replaces one that
// a dead daemon, or a predecessor, left there.
func (d *adminSocket) listen() error {
	at := &net.UnixAddr{Name: d.path, Net: "unix"}
	if d.hooks.inherited == nil {
		if c, err := net.DialUnix("unix", nil, at); err == nil {
			c.Close()
			return fmt.Errorf("%s: another daemon uses it; give each daemon its own state folder or admin_socket", d.path)
		}
	}
	fresh := fmt.Sprintf("%s.%d", d.path, os.Getpid())
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: fresh, Net: "unix"})
	if errors.Is(err, syscall.EINVAL) && len(fresh) > 100 {
		err = fmt.Errorf("%s: the path is too long for a socket; set a shorter admin_socket", d.path)
	}
	if err != nil {
		return err
	}
	ln.SetUnlinkOnClose(false)
	if err = os.Chmod(fresh, 0o600); err == nil {
		err = os.Rename(fresh, d.path)
	}
	if err != nil {
		os.Remove(fresh)
		ln.Close()
		return err
	}
	d.ln, d.created = ln, true
	return nil
}

// begin starts to serve clients.
func (d *adminSocket) begin() {
	if d == nil {
		return
	}
	d.once.Do(func() {
		if d.ln == nil { // a successor's, whose predecessor has released it
			if err := d.listen(); err != nil {
				d.log.Warn("isthmus drain cannot reach this daemon", "error", err)
				return
			}
		}
		d.work.Go(d.accept)
	})
}

// close sends the clients that the daemon has ended, and removes the socket unless a successor has
// taken the place.
func (d *adminSocket) close(handed bool) {
	if d == nil {
		return
	}
	d.once.Do(func() {}) // prevents a later begin
	d.cancel()
	if d.ln != nil {
		d.ln.Close()
	}
	d.work.Wait()
	if d.created && !handed {
		if err := os.Remove(d.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			d.log.Warn("the admin socket stays", "error", err)
		}
	}
}

func (d *adminSocket) accept() {
	err := accept.Each(d.ctx, d.log, d.ln.Addr(), d.ln.AcceptUnix, func(c *net.UnixConn) {
		select {
		case d.slots <- struct{}{}:
			d.work.Go(func() {
				defer func() { <-d.slots }()
				defer c.Close()
				d.serve(c)
			})
		default:
			d.sendProgress(c, Progress{Refuse: fmt.Sprintf("%d others are asking", maxVisitors)})
			c.Close()
		}
	})
	if err != nil && d.ctx.Err() == nil {
		d.log.Warn("isthmus drain cannot reach this daemon any more", "error", err)
	}
}

// serve reads a client's request and sends it the progress.
func (d *adminSocket) serve(c *net.UnixConn) {
	cred, err := local.PeerCred(c)
	if err == nil && cred.UID != 0 && int(cred.UID) != os.Geteuid() {
		err = fmt.Errorf("user %d may give this daemon no orders; be root or its own user", cred.UID)
	}
	if err != nil {
		d.log.Warn("an order was refused", "uid", cred.UID, "error", err)
		d.sendProgress(c, Progress{Refuse: err.Error()})
		return
	}
	c.SetReadDeadline(time.Now().Add(orderTime))
	defer context.AfterFunc(d.ctx, func() { c.SetReadDeadline(time.Unix(1, 0)) })()
	order, err := bufio.NewReaderSize(c, 64).ReadSlice('\n')
	if word := strings.TrimSpace(string(order)); err != nil || word != drainOrder {
		if d.ctx.Err() == nil {
			d.sendProgress(c, Progress{Refuse: fmt.Sprintf("this version knows the order %q only", drainOrder)})
		}
		return
	}
	d.log.Info("drain requested", "uid", cred.UID, "pid", cred.PID)
	select {
	case d.orders <- syscall.SIGUSR1: // a repetition is harmless
	case <-d.ctx.Done():
	}
	for look := time.NewTicker(tellEvery); ; {
		if d.ctx.Err() == nil && !d.sendProgress(c, d.progress(StateDraining)) {
			look.Stop()
			return // the client has gone; the daemon goes on
		}
		select {
		case <-look.C:
		case <-d.ctx.Done():
			look.Stop()
			d.sendProgress(c, d.progress(StateEnded))
			return
		}
	}
}

func (d *adminSocket) progress(state string) Progress {
	p := d.hooks.progress()
	p.Daemon, p.PID, p.State = d.name, os.Getpid(), state
	return p
}

func (d *adminSocket) sendProgress(c net.Conn, p Progress) bool {
	line, err := json.Marshal(p)
	if err != nil {
		panic(err) // texts, numbers and a time
	}
	c.SetWriteDeadline(time.Now().Add(tellTime))
	_, err = c.Write(append(line, '\n'))
	return err == nil
}

// Drain makes the daemon behind a socket drain, calls each with its progress, about twice a second,
// and returns when it has ended: nil if it reported so. When ctx ends first, that is the error, and
// the daemon continues draining.
func Drain(ctx context.Context, socket string, each func(Progress)) error {
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s: no daemon listens there: it does not run, or has another admin_socket", socket)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s: only root and the daemon's own user may give it orders", socket)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%s: the daemon closed the connection without an answer", socket)
	case err != nil:
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })()
	if _, err := c.Write([]byte(drainOrder + "\n")); err != nil {
		return err
	}
	lines := bufio.NewScanner(c)
	for lines.Scan() {
		var p Progress
		if err := json.Unmarshal(lines.Bytes(), &p); err != nil {
			return fmt.Errorf("%s: the daemon's answer: %w", socket, err)
		}
		if p.Refuse != "" {
			return fmt.Errorf("%s: %s", socket, p.Refuse)
		}
		each(p)
		if p.State == StateEnded {
			return nil
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%s: %w", socket, err)
	}
	return fmt.Errorf("%s: the daemon ended before it reported its end; see its log", socket)
}
