package daemon

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// This file takes over listening sockets that the service manager opened (sd_listen_fds(3)): with a
// .socket unit the daemon may listen on port 443 without any capability, and clients that connect
// during its restart wait. A passed socket has the name of a setting (FileDescriptorName=listen)
// and replaces one that the daemon would open for that setting's address.

// The variables by which the service manager passes sockets.
const (
	listenPID   = "LISTEN_PID"
	listenFDs   = "LISTEN_FDS"
	listenNames = "LISTEN_FDNAMES"

	firstPassed = 3  // the first socket's descriptor
	maxPassed   = 64 // more than any daemon's settings use
)

// activation holds the sockets that the service manager passed. Safe for concurrent use.
type activation struct {
	mu     sync.Mutex // guards the fields below
	free   []passed   // not taken by a setting
	wanted []string   // names of sockets that settings requested, with their addresses
}

// passed is one passed socket.
type passed struct {
	name string         // of the setting
	addr netip.AddrPort // that it listens on
	file *os.File
}

// activated takes over the sockets passed to this process; nil without any. It is called once,
// before other descriptors are opened or passed on.
func activated() (*activation, error) {
	if os.Getenv(listenPID) != strconv.Itoa(os.Getpid()) {
		return nil, nil // for another process, or for none
	}
	count, names := os.Getenv(listenFDs), os.Getenv(listenNames)
	for _, v := range []string{listenPID, listenFDs, listenNames} {
		os.Unsetenv(v) // it describes this process's descriptors only
	}
	n, err := strconv.Atoi(count)
	if err != nil || n < 0 || n > maxPassed {
		return nil, fmt.Errorf("%s=%q: want a number of sockets, %d at most", listenFDs, count, maxPassed)
	}
	list := strings.Split(names, ":")
	if len(list) != n && n > 0 {
		return nil, fmt.Errorf("%s=%q names %d sockets, and %s says %d", listenNames, names, len(list), listenFDs, n)
	}
	a := &activation{}
	var errs []error
	for i := range n {
		fd := firstPassed + i
		syscall.CloseOnExec(fd)
		addr, err := listensOn(fd)
		if err != nil {
			errs = append(errs, fmt.Errorf("the service manager's socket %d (%s): %w", i+1, list[i], err))
		}
		a.free = append(a.free, passed{list[i], addr, os.NewFile(uintptr(fd), list[i])})
	}
	return a, errors.Join(errs...)
}

// listensOn returns the address of a socket that accepts TCP connections.
func listensOn(fd int) (netip.AddrPort, error) {
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("descriptor %d is no socket: %w", fd, err)
	}
	accepts, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	if err != nil {
		return netip.AddrPort{}, err
	}
	if kind != unix.SOCK_STREAM || accepts == 0 {
		return netip.AddrPort{}, errors.New("it does not accept connections; the .socket unit must have ListenStream=HOST:PORT, and not Accept=yes")
	}
	at, err := unix.Getsockname(fd)
	if err != nil {
		return netip.AddrPort{}, err
	}
	switch at := at.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(at.Addr), uint16(at.Port)), nil
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(at.Addr), uint16(at.Port)), nil
	}
	return netip.AddrPort{}, errors.New("it is not a TCP socket; the .socket unit must have ListenStream=HOST:PORT")
}

// take returns the socket for a name in the form of [Socket], "listen 0.0.0.0:443", or nil if none
// was passed.
func (a *activation) take(name string) *os.File {
	if a == nil {
		return nil
	}
	key, text, _ := strings.Cut(name, " ")
	at, err := netip.ParseAddrPort(text)
	if err != nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.wanted = append(a.wanted, name)
	i := chosen(a.free, key, at)
	if i < 0 {
		return nil
	}
	f := a.free[i].file
	a.free = slices.Delete(a.free, i, i+1)
	return f
}

// chosen returns the index of the socket for a setting with an address, or -1. The port must be
// that of the setting, if it names one; either address may be unspecified.
func chosen(all []passed, key string, at netip.AddrPort) int {
	best := -1
	for i, p := range all {
		port := at.Port() == 0 || at.Port() == p.addr.Port()
		exact := p.addr.Addr().Unmap() == at.Addr().Unmap()
		switch {
		case p.name != key || !port:
		case exact:
			return i
		case best < 0 && (p.addr.Addr().IsUnspecified() || at.Addr().IsUnspecified()):
			best = i
		}
	}
	return best
}

// unusedError returns which sockets no setting took, or nil. Clients that connect to one would wait
// forever.
func (a *activation) unusedError() error {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	var errs []error
	for _, p := range a.free {
		p.file.Close()
		errs = append(errs, fmt.Errorf("the service manager passed the socket %s (%v), which is none of this daemon's settings that listen: %s; "+
			"FileDescriptorName= of the .socket unit must be the name of one, and ListenStream= its address",
			p.name, p.addr, strings.Join(a.wanted, ", ")))
	}
	a.free = nil
	return errors.Join(errs...)
}

// hint adds to the error of a failed listen that a socket of that name, with another address, was
// passed.
func (a *activation) hint(name string, err error) error {
	if a == nil {
		return err
	}
	key, _, _ := strings.Cut(name, " ")
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range a.free {
		if p.name == key {
			return fmt.Errorf("%w (the service manager passed a socket of that name, which listens on %v: ListenStream= of the .socket unit and the setting must be the same)", err, p.addr)
		}
	}
	return err
}

// socketOf converts a passed descriptor to a Go listener or connection.
func socketOf[S socket](f *os.File, whose string) (s S, err error) {
	defer f.Close()
	var made any
	if _, packets := any(s).(net.PacketConn); packets {
		made, err = net.FilePacketConn(f)
	} else {
		made, err = net.FileListener(f)
	}
	if err != nil {
		return s, fmt.Errorf("%s socket %s: %w", whose, f.Name(), err)
	}
	s, ok := made.(S)
	if !ok {
		return s, fmt.Errorf("%s socket %s is a %T", whose, f.Name(), made)
	}
	return s, nil
}
