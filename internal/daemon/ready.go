package daemon

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
)

// An announcer tells whoever started the process that it serves, and that it
// stops. What it writes to is opened before the daemon starts, so that a wrong
// flag is an error and not a starter that waits for ever.
type announcer struct {
	once   sync.Once
	fd     *os.File // nil: none
	file   string   // "": none
	notify *net.UnixConn

	inherited *inheritance // nil: no predecessor
	handed    bool         // the file is the successor's by now
}

func newAnnouncer(l *life) (*announcer, error) {
	a := &announcer{file: l.readyFile, inherited: l.hooks.inherited}
	if l.readyFD != 0 && a.inherited == nil { // of a successor, the number is its predecessor's

		a.fd = os.NewFile(uintptr(l.readyFD), fmt.Sprintf("descriptor %d", l.readyFD))
		if l.readyFD < 0 || a.fd == nil {
			return nil, fmt.Errorf("--ready-fd %d: not a descriptor", l.readyFD)
		}
		if _, err := a.fd.Stat(); err != nil {
			return nil, fmt.Errorf("--ready-fd %d: nothing is open there: %w", l.readyFD, err)
		}
	}
	if a.file != "" && a.inherited == nil {
		// A file of an earlier run must not speak for this one.
		if err := os.Remove(a.file); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("--ready-file: %w", err)
		}
	}
	if l.notifySocket != "" {
		// systemd.notify(3); net spells a leading @ as the abstract name space too.
		conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: l.notifySocket, Net: "unixgram"})
		if err != nil {
			return nil, fmt.Errorf("NOTIFY_SOCKET: %w", err)
		}
		a.notify = conn
	}
	return a, nil
}

// ready tells once that the daemon serves.
func (a *announcer) ready(facts []string) error {
	var errs []error
	a.once.Do(func() {
		line := strings.Join(append([]string{"ready"}, facts...), " ") + "\n"
		if a.fd != nil {
			_, err := a.fd.WriteString(line)
			errs = append(errs, err, a.fd.Close())
		}
		if a.file != "" {
			errs = append(errs, writeWhole(a.file, line))
		}
		errs = append(errs, a.sendState("READY=1"))
		if a.inherited != nil {
			errs = append(errs, a.inherited.begin())
		}
	})
	return errors.Join(errs...)
}

// writeWhole creates a file that is never seen half written.
func writeWhole(name, text string) error {
	if err := os.WriteFile(name+".new", []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// stopping tells that the daemon ends because it was asked to. A systemd that
// cannot hear it harms nothing.
func (a *announcer) stopping() { _ = a.sendState("STOPPING=1") }

// reloading and again are told before and after the settings are read anew.
func (a *announcer) reloading()     { _ = a.sendState("RELOADING=1") }
func (a *announcer) announceReady() { _ = a.sendState("READY=1") }

// status is for who looks at the service.
func (a *announcer) status(text string) { _ = a.sendState("STATUS=" + text) }

// succeeded tells which process is the service from now on.
func (a *announcer) succeeded(pid int) {
	a.handed = true
	_ = a.sendState(fmt.Sprintf("MAINPID=%d\nREADY=1", pid))
}

func (a *announcer) sendState(state string) error {
	if a.notify == nil {
		return nil
	}
	_, err := a.notify.Write([]byte(state))
	return err
}

// close leaves no ready file of a daemon that is gone.
func (a *announcer) close() {
	if a.notify != nil {
		a.notify.Close()
	}
	if a.file != "" && !a.handed {
		os.Remove(a.file)
	}
}
