package daemon_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/daemon"
	"github.com/isthmus-grid/isthmus/internal/daemon/daemontest"
)

func patient(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// A client that drains a daemon is told what is left and that it has ended, and no socket stays
// behind.
func TestDrainByTheSocket(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, daemon.AdminSocketName)
	cmd := fakeCommand(t, "--word=four")
	cmd.Env = append(cmd.Env, "STATE_DIRECTORY="+dir)
	p := daemontest.Start(t, cmd)
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v", info, err)
	}
	var told []daemon.Progress
	if err := daemon.Drain(patient(t), socket, func(p daemon.Progress) { told = append(told, p) }); err != nil {
		t.Fatal(err)
	}
	last := told[len(told)-1]
	if last.State != daemon.StateEnded || last.Daemon != "isthmus-fake" || last.What != "words" || last.Left != 4 || last.Cut != 0 || last.PID != cmd.Process.Pid {
		t.Errorf("told at last %+v", last)
	}
	if status, _, stderr := p.Wait(); status != 0 || !strings.Contains(stderr, "msg=draining") {
		t.Errorf("status %d:\n%s", status, stderr)
	}
	if _, err := os.Stat(socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket of a daemon that has ended: %v", err)
	}
	err := daemon.Drain(patient(t), socket, func(daemon.Progress) {})
	if err == nil || !strings.Contains(err.Error(), "no daemon listens there") {
		t.Errorf("draining what has ended: %v", err)
	}
}

// An invalid or unknown request changes nothing; a second daemon does not take the first one's
// place, but it replaces a dead one's socket.
func TestAdminSocketMistakes(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "s")
	p := daemontest.Start(t, fakeCommand(t, "--admin-socket", socket))
	c, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintln(c, "dance")
	c.SetDeadline(time.Now().Add(time.Minute))
	if line, _ := bufio.NewReader(c).ReadString('\n'); !strings.Contains(line, "knows the order") {
		t.Errorf("another order was answered %q", line)
	}
	if status, _, stderr := result(t, fakeCommand(t, "--admin-socket", socket)); status != 1 || !strings.Contains(stderr, "another daemon uses it") {
		t.Errorf("a second daemon: status %d, %s", status, stderr)
	}
	p.Stop()
	if status, _, stderr := result(t, fakeCommand(t, "--admin-socket", filepath.Join(dir, "no", "s"))); status != 1 || !strings.Contains(stderr, "admin_socket: ") {
		t.Errorf("a folder that is not there: status %d, %s", status, stderr)
	}
	if status, _, stderr := result(t, fakeCommand(t, "--admin-socket", filepath.Join(dir, strings.Repeat("x", 120)))); status != 1 || !strings.Contains(stderr, "too long for a socket") {
		t.Errorf("a path that is too long: status %d, %s", status, stderr)
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"}) // one that was left behind
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	ln.Close()
	if err := daemon.Drain(patient(t), socket, func(daemon.Progress) {}); err == nil || !strings.Contains(err.Error(), "closed the connection without an answer") {
		t.Errorf("draining a dead daemon: %v", err)
	}
	daemontest.Start(t, fakeCommand(t, "--admin-socket", socket)).Stop()
}

// Work left after drain_grace is cut, and counted. A client with a shorter deadline gets a timeout,
// and the daemon continues to drain.
func TestDrainIsCut(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	p := daemontest.Start(t, fakeCommand(t, "--admin-socket", socket, "--word=four", "--busy", "--drain-grace=2s"))
	short, cancel := context.WithCancel(t.Context())
	err := daemon.Drain(short, socket, func(daemon.Progress) { cancel() })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("who left: %v", err)
	}
	var last daemon.Progress
	if err := daemon.Drain(patient(t), socket, func(p daemon.Progress) { last = p }); err != nil {
		t.Fatal(err)
	}
	if last.State != daemon.StateEnded || last.Cut != 4 || last.Until.IsZero() {
		t.Errorf("told at last %+v", last)
	}
	if status, _, stderr := p.Wait(); status != 0 || !strings.Contains(stderr, "drained for long enough") {
		t.Errorf("status %d:\n%s", status, stderr)
	}
}
