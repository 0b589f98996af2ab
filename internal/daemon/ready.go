package daemon

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
)

// An announcer notifies the starter of the process that it serves, and that it stops. It opens its
// destinations before the daemon starts, so that a wrong flag is an error and does not leave the
// starter waiting forever.
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
	if l.readyFD != 0 && a.inherited == nil { // for a successor, the number is its predecessor's

		a.fd = os.NewFile(uintptr(l.readyFD), fmt.Sprintf("descriptor %d", l.readyFD))
		if l.readyFD < 0 || a.fd == nil {
			return nil, fmt.Errorf("--ready-fd %d: not a descriptor", l.readyFD)
		}
		if _, err := a.fd.Stat(); err != nil {
			return nil, fmt.Errorf("--ready-fd %d: nothing is open there: %w", l.readyFD, err)
		}
	}
	if a.file != "" && a.inherited == nil {
		// A file of an earlier run must not announce this one.
		if err := os.Remove(a.file); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("--ready-file: %w", err)
		}
	}
	if l.notifySocket != "" {
		// sd_notify(3); net uses a leading @ for the abstract name space, too.
		conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: l.notifySocket, Net: "unixgram"})
		if err != nil {
			return nil, fmt.Errorf("NOTIFY_SOCKET: %w", err)
		}
		a.notify = conn
	}
	return a, nil
}

// ready announces once that the daemon serves.
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

// writeWhole creates a file atomically.
func writeWhole(name, text string) error {
	if err := os.WriteFile(name+".new", []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// stopping announces that the daemon ends on request. A failure to notify systemd is harmless.
func (a *announcer) stopping() { _ = a.sendState("STOPPING=1") }

// reloading and announceReady are called before and after the settings are read again.
func (a *announcer) reloading()     { _ = a.sendState("RELOADING=1") }
func (a *announcer) announceReady() { _ = a.sendState("READY=1") }

// status sets the status text that systemctl shows.
func (a *announcer) status(text string) { _ = a.sendState("STATUS=" + text) }

// succeeded announces the process that is the service from now on.
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

// close removes the ready file at the daemon's end.
func (a *announcer) close() {
	if a.notify != nil {
		a.notify.Close()
	}
	if a.file != "" && !a.handed {
		os.Remove(a.file)
	}
}
