package lab

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A Host is one machine of the lab: a network namespace. Its methods are safe
// for concurrent use.
type Host struct {
	plan  hostPlan
	quota *quota // of its commands; nil: none

	mu     sync.Mutex
	ns     *os.File     // the namespace; nil after close
	groups map[int]bool // process groups that Command started and that were not waited for
}

// newHost makes a network namespace and a Host for it.
func newHost(p hostPlan) (*Host, error) {
	h := &Host{plan: p, groups: make(map[int]bool)}
	return h, onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("making a network namespace for %s: %w", p.name, err)
		}
		ns, err := threadNamespace()
		h.ns = ns
		return err
	})
}

func (h *Host) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ns != nil {
		h.ns.Close()
		h.ns = nil
	}
}

// Name returns "site/host".
func (h *Host) Name() string { return h.plan.name }

// Addr returns the host's address: on its LAN, or on the internet for a public
// host.
func (h *Host) Addr() netip.Addr { return h.plan.addr }

// WANAddr returns the address of a gateway, provider or public host towards the internet; it is not
// valid for a node. See Lab.Outside for the address at which others reach a gateway.
func (h *Host) WANAddr() netip.Addr { return h.plan.wan }

// Addr6 returns the host's IPv6 address, on the same interface as Addr. It is not valid if the host
// has none.
func (h *Host) Addr6() netip.Addr { return h.plan.six.addr }

// WANAddr6 is WANAddr for IPv6.
func (h *Host) WANAddr6() netip.Addr { return h.plan.six.wan }

// OnlyIPv6 reports whether over IPv4 the host reaches only its own site.
func (h *Host) OnlyIPv6() bool { return h.plan.only6 }

// Role returns "node", "gateway", "provider" (a router between a gateway and the
// internet), "public" or "proxy".
func (h *Host) Role() string { return roleNames[h.plan.role] }

// Preset returns the preset of the host's site, or Public.
func (h *Host) Preset() string { return h.plan.presetIs }

// threadNamespace opens the calling thread's network namespace.
func threadNamespace() (*os.File, error) { return os.Open("/proc/thread-self/ns/net") }

// onThread calls fn on a thread that returns to its network namespace afterwards, whatever fn
// changed. fn runs on the caller's goroutine, so onThread can be nested and a panic or Goexit of fn
// passes through.
func onThread(fn func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := threadNamespace()
	if err != nil {
		return fmt.Errorf("opening the thread's namespace: %w", err)
	}
	defer home.Close()
	defer func() {
		if err := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); err != nil {
			panic(fmt.Sprintf("lab: a thread cannot return to its namespace: %v", err)) // or sockets would be created elsewhere
		}
	}()
	return fn()
}

// Do calls fn on a thread that is in the host's network namespace. Sockets that fn creates itself
// belong to that namespace and stay there; goroutines that it starts run elsewhere, so it must dial
// only address literals, with "tcp4", "udp4" or the same with a 6.
func (h *Host) Do(fn func() error) error {
	return onThread(func() error {
		h.mu.Lock()
		err := os.ErrClosed
		if h.ns != nil {
			err = unix.Setns(int(h.ns.Fd()), unix.CLONE_NEWNET)
		}
		h.mu.Unlock()
		if err != nil {
			return fmt.Errorf("lab: entering %s: %w", h.Name(), err)
		}
		return fn()
	})
}

// literal checks that addr is an address literal, as Do requires, and returns network with the
// version of IP that addr has or, if it has none, that network has or 4.
func literal(network, addr string) (string, error) {
	kind, version := strings.TrimRight(network, "46"), strings.TrimLeft(network, "tcpud")
	if kind != "tcp" && kind != "udp" || len(version) > 1 {
		return "", fmt.Errorf("network %q is neither tcp nor udp", network)
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return "", err
	}
	if host == "" {
		return kind + cmp.Or(version, "4"), nil
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return "", fmt.Errorf("%q is no address: names are not looked up here", host)
	}
	of := "4"
	if a.Is6() {
		of = "6"
	}
	if version != "" && version != of {
		return "", fmt.Errorf("%v is no address of %s", a, network)
	}
	return kind + of, nil
}

// Dial connects from the host. network is tcp or udp, addr an address literal with
// a port; the result is a *net.TCPConn or *net.UDPConn.
func (h *Host) Dial(ctx context.Context, network, addr string) (c net.Conn, err error) {
	if network, err = literal(network, addr); err == nil {
		err = h.Do(func() (err error) {
			c, err = new(net.Dialer).DialContext(ctx, network, addr)
			return err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("from %s: %w", h.Name(), err)
	}
	return c, nil
}

// Listen listens on the host for TCP; addr is "address:port", or ":port" for all of the host's IPv4
// addresses (with network "tcp6", its IPv6 addresses), and port 0 chooses one. The result is a
// *net.TCPListener.
func (h *Host) Listen(network, addr string) (ln net.Listener, err error) {
	if network, err = literal(network, addr); err == nil {
		err = h.Do(func() (err error) {
			ln, err = new(net.ListenConfig).Listen(context.Background(), network, addr)
			return err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("on %s: %w", h.Name(), err)
	}
	return ln, nil
}

// ListenPacket is Listen for UDP; the result is a *net.UDPConn.
func (h *Host) ListenPacket(network, addr string) (pc net.PacketConn, err error) {
	if network, err = literal(network, addr); err == nil {
		err = h.Do(func() (err error) {
			pc, err = new(net.ListenConfig).ListenPacket(context.Background(), network, addr)
			return err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("on %s: %w", h.Name(), err)
	}
	return pc, nil
}

// outputPatience is how long a command's output may stay open after its end.
const outputPatience = 2 * time.Second

// A Cmd is an exec.Cmd whose process starts in a host. It is used like the exec.Cmd it holds, but
// must be started by the methods of Cmd.
type Cmd struct {
	*exec.Cmd
	host *Host
}

// Command prepares a process on the host. It leads a process group of its own;
// the whole group is killed when ctx is done, when the command has been waited for,
// and when the lab is closed.
func (h *Host) Command(ctx context.Context, name string, args ...string) *Cmd {
	c := &Cmd{Cmd: exec.CommandContext(ctx, name, args...), host: h}
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.WaitDelay = outputPatience
	c.Cancel = func() error { return c.Process.Kill() } // Wait kills the rest of the group
	return c
}

// ownGroup reports whether the process leads a group of its own.
func (c *Cmd) ownGroup() bool {
	return c.SysProcAttr != nil && (c.SysProcAttr.Setpgid || c.SysProcAttr.Foreground)
}

// Start is exec.Cmd.Start in the host's network namespace.
func (c *Cmd) Start() error {
	h := c.host
	err := h.Do(func() error { return h.quota.start(c.Cmd) })
	if err != nil {
		return fmt.Errorf("on %s: %w", h.Name(), err)
	}
	if !c.ownGroup() {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.groups[c.Process.Pid] = true
	if h.ns == nil { // closed meanwhile: killAll has not seen it
		killGroup(c.Process.Pid)
	}
	return nil
}

// Wait is exec.Cmd.Wait; it then kills the processes left in the command's group.
func (c *Cmd) Wait() error {
	err := c.Cmd.Wait()
	if c.Process != nil && c.ownGroup() {
		killGroup(c.Process.Pid)
		c.host.mu.Lock()
		delete(c.host.groups, c.Process.Pid)
		c.host.mu.Unlock()
	}
	return err
}

// Run is Start and Wait.
func (c *Cmd) Run() error {
	if err := c.Start(); err != nil {
		return err
	}
	return c.Wait()
}

// Output runs the command and returns its standard output.
func (c *Cmd) Output() ([]byte, error) {
	if c.Stdout != nil {
		return nil, errors.New("lab: Stdout already set")
	}
	var b bytes.Buffer
	c.Stdout = &b
	err := c.Run()
	return b.Bytes(), err
}

// CombinedOutput runs the command and returns its standard output and error.
func (c *Cmd) CombinedOutput() ([]byte, error) {
	if c.Stdout != nil || c.Stderr != nil {
		return nil, errors.New("lab: Stdout or Stderr already set")
	}
	var b bytes.Buffer
	c.Stdout, c.Stderr = &b, &b
	err := c.Run()
	return b.Bytes(), err
}

// killAll kills all process groups of the host that were not waited for.
func (h *Host) killAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for g := range h.groups {
		killGroup(g)
	}
}

// killGroup kills a group; an error means that it is empty.
func killGroup(leader int) { syscall.Kill(-leader, syscall.SIGKILL) }
