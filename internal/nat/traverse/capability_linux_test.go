//go:build system

package traverse

import (
	"bufio"
	"context"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-grid/isthmus/internal/nat/simopen"
	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/lab/wan"
	"github.com/isthmus-grid/isthmus/overlay"
)

// childEnv makes the test binary act as a helper: "asker ADDRESS TARGET-PORT" or "target ADDRESS",
// after the capabilities that it keeps ("raw" or "none").
const childEnv = "ISTHMUS_TRAVERSE_TEST_CHILD"

// nobody is a uid that needs no entry in the user database.
const nobody = 65534

// TestMain starts a child before the lab can re-execute the process. It does not interfere with
// fuzzing, which passes descriptors to the processes that it starts; select no test of the lab
// together with -fuzz.
func TestMain(m *testing.M) {
	if role := os.Getenv(childEnv); role != "" {
		if err := child(strings.Fields(role)); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	flag.Parse()
	if flag.Lookup("test.fuzz").Value.String() == "" {
		lab.Main()
	}
	m.Run()
}

// child is a helper that has one capability, or none. Its standard streams carry what a broker
// would carry.
func child(words []string) error {
	runtime.LockOSThread() // capabilities belong to a thread
	if err := keep(words[0]); err != nil {
		return err
	}
	engine, err := Open()
	if err != nil {
		return err
	}
	defer engine.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	served := make(chan error, 1)
	go func() { served <- engine.Serve(ctx) }()
	defer func() { cancel(); <-served }()
	addr := netip.MustParseAddr(words[2])
	port, err := simopen.Prepare(ctx, addr, overlay.Ports{})
	if err != nil {
		return err
	}
	defer port.Close()
	lines := bufio.NewReader(os.Stdin)
	if words[1] == "target" {
		return target(ctx, engine, port, lines)
	}
	remote := netip.MustParseAddrPort(words[3])
	conn, err := engine.Connect(ctx, Request{
		Level: TravEcho, Local: port.Local(), Remote: remote,
		Dial: func(ctx context.Context) (*net.TCPConn, error) { return port.Dial(ctx, remote) },
		Carry: func(_ context.Context, syn []byte) error {
			fmt.Println(port.Local(), hex.EncodeToString(syn))
			_, err := lines.ReadString('\n')
			return err
		},
	})
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := conn.Write([]byte("hello")); err != nil {
		return err
	}
	conn.CloseWrite()
	back, err := io.ReadAll(conn)
	fmt.Printf("heard %s\n", back)
	return err
}

// target injects one SYN and echoes the connection's data.
func target(ctx context.Context, e *Engine, port *simopen.Port, lines *bufio.Reader) error {
	fmt.Println(port.Local())
	var source, packet string
	if _, err := fmt.Fscan(lines, &source, &packet); err != nil {
		return err
	}
	syn, err := hex.DecodeString(packet)
	if err != nil {
		return err
	}
	from := netip.MustParseAddrPort(source)
	if _, err := e.Inject(ctx, Injection{Level: TravEcho, SYN: syn, Source: from, Target: port.Local()}); err != nil {
		return err
	}
	fmt.Println("injected")
	conn, err := port.Accept(ctx, from)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = io.Copy(conn, conn)
	return err
}

// keep drops every capability but CAP_NET_RAW, or all, from the calling thread.
func keep(which string) error {
	var data [2]unix.CapUserData
	if which == "raw" {
		data[0].Effective = 1 << unix.CAP_NET_RAW
		data[0].Permitted = data[0].Effective
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	return os.NewSyscallError("capset", unix.Capset(&header, &data[0]))
}

// helper starts a child on a host, as another user where this one may become one, with no
// capability but, ambient, CAP_NET_RAW.
func helper(t *testing.T, h *lab.Host, role string) (say io.Writer, hear *bufio.Reader) {
	t.Helper()
	c := h.Command(t.Context(), "/proc/self/exe")
	c.Env = append(os.Environ(), childEnv+"="+role)
	if canBecomeNobody() {
		c.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
		if strings.HasPrefix(role, "raw") {
			c.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_NET_RAW}
		}
	}
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); c.Wait() })
	return in, bufio.NewReader(output)
}

// canBecomeNobody reports whether this process may change to another user: the user namespace of an
// ordinary user has only one.
func canBecomeNobody() bool {
	ids, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return false
	}
	var inside, outside, count uint64
	fmt.Sscan(string(ids), &inside, &outside, &count)
	return os.Getuid() == 0 && inside == 0 && count > nobody
}

func line(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	s, err := r.ReadString('\n')
	if err != nil {
		t.Fatalf("the helper said %q and ended: %v", s, err)
	}
	return strings.TrimSpace(s)
}

// TestOneCapability: CAP_NET_RAW is all that both helpers need, at the most demanding level, over
// either IP version.
func TestOneCapability(t *testing.T) {
	l, err := lab.Up(t.Context(), lab.Spec{IPv6: true, WAN: lab.WAN{Default: wan.Shape{Delay: oneWay}}, Sites: []lab.Site{
		{Name: "a", Preset: "stateful-strict", Nodes: lab.Nodes(1)}, {Name: "b", Preset: "stateful-strict", Nodes: lab.Nodes(1)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	a, b := l.Host("a/n1"), l.Host("b/n1")
	for _, ends := range [][2]netip.Addr{{a.Addr(), b.Addr()}, {a.Addr6(), b.Addr6()}} {
		toTarget, fromTarget := helper(t, b, fmt.Sprint("raw target ", ends[1]))
		listener := line(t, fromTarget)
		toAsker, fromAsker := helper(t, a, fmt.Sprintf("raw asker %v %s", ends[0], listener))
		fmt.Fprintln(toTarget, line(t, fromAsker))
		if got := line(t, fromTarget); got != "injected" {
			t.Fatalf("target at %v: %s", ends[1], got)
		}
		fmt.Fprintln(toAsker, "injected")
		if got := line(t, fromAsker); got != "heard hello" {
			t.Errorf("asker at %v: %s", ends[0], got)
		}
	}

	_, without := helper(t, b, fmt.Sprint("none target ", b.Addr()))
	if got := line(t, without); !strings.Contains(got, ErrPrivilege.Error()) || !strings.Contains(got, "AmbientCapabilities=CAP_NET_RAW") {
		t.Errorf("without it: %s", got)
	}
}
