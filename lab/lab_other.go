//go:build !linux

package lab

import (
	"context"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"

	"github.com/isthmus-grid/isthmus/lab/wan"
)

// Dir returns the directory for a lab's files.
func Dir() string { return os.TempDir() }

// Enter returns ErrNotLinux.
func Enter() error { return ErrNotLinux }

// SetMTU returns ErrNotLinux.
func SetMTU(string, int) error { return ErrNotLinux }

// A Lab is a set of running sites; it exists on Linux only.
type Lab struct{}

// Up returns ErrNotLinux.
func Up(context.Context, Spec) (*Lab, error) { return nil, ErrNotLinux }

// Done returns nil.
func (*Lab) Done() <-chan struct{} { return nil }

// Err returns ErrNotLinux.
func (*Lab) Err() error { return ErrNotLinux }

// Close returns ErrNotLinux.
func (*Lab) Close() error { return ErrNotLinux }

// Host returns an empty host.
func (*Lab) Host(string) *Host { return &Host{} }

// Lookup returns ErrNotLinux.
func (*Lab) Lookup(string) (*Host, error) { return nil, ErrNotLinux }

// Hosts returns nil.
func (*Lab) Hosts() []*Host { return nil }

// Outside returns an address that is not valid.
func (*Lab) Outside(string) netip.Addr { return netip.Addr{} }

// Proxy returns nil.
func (*Lab) Proxy(string) *ConnectProxy { return nil }

// Place returns the site.
func (*Lab) Place(site string) string { return site }

// Shapes returns nil.
func (*Lab) Shapes() map[[2]string]wan.Shape { return nil }

// Traffic returns nil.
func (*Lab) Traffic() []wan.Counter { return nil }

// Reshape returns ErrNotLinux.
func (*Lab) Reshape(ends [2]string, s wan.Shape) error { return ErrNotLinux }

// SetWAN returns ErrNotLinux.
func (*Lab) SetWAN(from, to string, s wan.Shape) error { return ErrNotLinux }

// Cut returns ErrNotLinux.
func (*Lab) Cut(a, b string) error { return ErrNotLinux }

// CutUplink returns ErrNotLinux.
func (*Lab) CutUplink(string, int) error { return ErrNotLinux }

// RestoreUplink returns ErrNotLinux.
func (*Lab) RestoreUplink(string, int) error { return ErrNotLinux }

// Restore returns ErrNotLinux.
func (*Lab) Restore(a, b string) error { return ErrNotLinux }

// Resolve returns false.
func (*Lab) Resolve(string) (netip.Addr, bool) { return netip.Addr{}, false }

// A Host is one machine of a lab; it exists on Linux only.
type Host struct{}

// Name returns "".
func (*Host) Name() string { return "" }

// Addr returns an address that is not valid.
func (*Host) Addr() netip.Addr { return netip.Addr{} }

// WANAddr returns an address that is not valid.
func (*Host) WANAddr() netip.Addr { return netip.Addr{} }

// Addr6 returns an address that is not valid.
func (*Host) Addr6() netip.Addr { return netip.Addr{} }

// WANAddr6 returns an address that is not valid.
func (*Host) WANAddr6() netip.Addr { return netip.Addr{} }

// OnlyIPv6 returns false.
func (*Host) OnlyIPv6() bool { return false }

// Role returns "".
func (*Host) Role() string { return "" }

// Preset returns "".
func (*Host) Preset() string { return "" }

// Rules returns "".
func (*Host) Rules() string { return "" }

// Do returns ErrNotLinux.
func (*Host) Do(func() error) error { return ErrNotLinux }

// Dial returns ErrNotLinux.
func (*Host) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	return nil, ErrNotLinux
}

// Listen returns ErrNotLinux.
func (*Host) Listen(network, addr string) (net.Listener, error) { return nil, ErrNotLinux }

// ListenPacket returns ErrNotLinux.
func (*Host) ListenPacket(network, addr string) (net.PacketConn, error) { return nil, ErrNotLinux }

// A Fault is an action of a host on a flow; it exists on Linux only.
type Fault struct{}

// Drop returns ErrNotLinux.
func (*Host) Drop(Flow) (*Fault, error) { return nil, ErrNotLinux }

// Police returns ErrNotLinux.
func (*Host) Police(Flow, uint64) (*Fault, error) { return nil, ErrNotLinux }

// Reset returns ErrNotLinux.
func (*Host) Reset(Flow) (*Fault, error) { return nil, ErrNotLinux }

// Strip returns ErrNotLinux.
func (*Host) Strip(options ...string) (*Fault, error) { return nil, ErrNotLinux }

// Met returns ErrNotLinux.
func (*Fault) Met() (uint64, error) { return 0, ErrNotLinux }

// Lift returns ErrNotLinux.
func (*Fault) Lift() error { return ErrNotLinux }

// ForgetFlows returns ErrNotLinux.
func (*Host) ForgetFlows() error { return ErrNotLinux }

// ForgetNames returns ErrNotLinux.
func (*Lab) ForgetNames() error { return ErrNotLinux }

// RestoreNames returns ErrNotLinux.
func (*Lab) RestoreNames() error { return ErrNotLinux }

// Renumber returns ErrNotLinux.
func (*Host) Renumber(from, to netip.Addr) error { return ErrNotLinux }

// A Cmd is a command on a host; it exists on Linux only.
type Cmd struct{ *exec.Cmd }

// Command prepares a command that cannot start.
func (*Host) Command(ctx context.Context, name string, args ...string) *Cmd {
	return &Cmd{exec.CommandContext(ctx, name, args...)}
}

// Start returns ErrNotLinux.
func (*Cmd) Start() error { return ErrNotLinux }

// Wait returns ErrNotLinux.
func (*Cmd) Wait() error { return ErrNotLinux }

// Run returns ErrNotLinux.
func (*Cmd) Run() error { return ErrNotLinux }

// Output returns ErrNotLinux.
func (*Cmd) Output() ([]byte, error) { return nil, ErrNotLinux }

// CombinedOutput returns ErrNotLinux.
func (*Cmd) CombinedOutput() ([]byte, error) { return nil, ErrNotLinux }

// Stay returns ErrNotLinux.
func Stay(context.Context, string, io.Writer) error { return ErrNotLinux }

// RunAt returns ErrNotLinux.
func RunAt(ctx context.Context, file, at string, argv []string) (int, error) { return 1, ErrNotLinux }

// A Narrowing is a path with a reduced MTU; it exists on Linux only.
type Narrowing struct{}

// Narrow returns ErrNotLinux.
func (*Lab) Narrow(site string, bytes int) (*Narrowing, error) { return nil, ErrNotLinux }

// Lift returns ErrNotLinux.
func (*Narrowing) Lift() error { return ErrNotLinux }
