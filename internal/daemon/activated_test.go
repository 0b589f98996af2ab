package daemon_test

import (
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// passing returns a command that starts the fake daemon as a service manager with sockets does;
// names are those of LISTEN_FDNAMES.
func passing(t *testing.T, files []*os.File, count, names string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := fakeCommand(t, args...)
	// Only the process itself knows its process id.
	cmd.Args = append([]string{"sh", "-c", `LISTEN_PID=$$ exec "$@"`, "sh", cmd.Path}, cmd.Args[1:]...)
	cmd.Path = "/bin/sh"
	cmd.Env = append(cmd.Env, "LISTEN_FDS="+count, "LISTEN_FDNAMES="+names)
	cmd.ExtraFiles = files
	return cmd
}

// listening returns a socket like one that a service manager opens.
func listening(t *testing.T) (*os.File, string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	f, err := ln.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f, ln.Addr().String()
}

// A daemon serves on the passed socket, including a client that connected before it ran, and so
// does its successor.
func TestPassedSocket(t *testing.T) {
	f, addr := listening(t)
	early, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	socket, told := systemd(t)
	cmd := passing(t, []*os.File{f}, "1", "listen", "--listen", addr, "--word=one")
	cmd.Env = append(cmd.Env, "NOTIFY_SOCKET="+socket)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cmd.Process.Kill()
		cmd.Wait()
	}()
	f.Close() // no other process listens there
	if got := told(); got != "READY=1" {
		t.Fatalf("told %q", got)
	}
	if got := finish(t, early, "who"); !strings.HasSuffix(got, " one") {
		t.Errorf("who came early was answered %q", got)
	}
	if got := say(t, addr, "hello"); got != "hello" {
		t.Errorf("answered %q", got)
	}
	cmd.Process.Signal(syscall.SIGTERM)
	defer time.AfterFunc(time.Minute, func() { cmd.Process.Kill() }).Stop()
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v:\n%s", err, stderr.String())
	}
}

// A mistake in the service manager's sockets is reported, and ends the daemon: clients that connect
// there must not wait forever.
func TestPassedSocketMistakes(t *testing.T) {
	tcp, addr := listening(t)
	unconnected, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	deaf := os.NewFile(uintptr(unconnected), "deaf")
	defer deaf.Close()
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	packets, err := udp.(*net.UDPConn).File()
	if err != nil {
		t.Fatal(err)
	}
	defer packets.Close()
	plain, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	for _, c := range []struct {
		what         string
		file         *os.File
		count, names string
		listen       string
		says         []string
	}{
		{"no number", tcp, "many", "listen", addr, []string{`LISTEN_FDS="many": want a number`}},
		{"too many", tcp, "65", "listen", addr, []string{"64 at most"}},
		{"too few names", tcp, "2", "listen", addr, []string{"names 1 sockets", "says 2"}},
		{"a file", plain, "1", "listen", addr, []string{"socket 1 (listen)", "is no socket"}},
		{"datagrams", packets, "1", "listen", addr, []string{"socket 1 (listen)", "ListenStream="}},
		{"a connection", deaf, "1", "listen", addr, []string{"not Accept=yes"}},
		{"a name of nothing", tcp, "1", "isthmus-fake.socket", "127.0.0.1:0", []string{"passed the socket isthmus-fake.socket (" + addr + ")", "listen 127.0.0.1:0", "FileDescriptorName="}},
		{"another address", tcp, "1", "listen", "127.0.0.1:1", []string{addr, "127.0.0.1:1"}},
	} {
		t.Run(c.what, func(t *testing.T) {
			status, _, stderr := result(t, passing(t, []*os.File{c.file}, c.count, c.names, "--listen", c.listen))
			if status != 1 {
				t.Errorf("status %d", status)
			}
			for _, part := range c.says {
				if !strings.Contains(stderr, part) {
					t.Errorf("it does not say %q:\n%s", part, stderr)
				}
			}
		})
	}
}

// Sockets for another process are not touched.
func TestSocketsOfAnotherProcess(t *testing.T) {
	cmd := fakeCommand(t, "--check")
	cmd.Env = append(cmd.Env, "LISTEN_PID=1", "LISTEN_FDS=many")
	if status, _, stderr := result(t, cmd); status != 0 {
		t.Errorf("status %d: %s", status, stderr)
	}
}
