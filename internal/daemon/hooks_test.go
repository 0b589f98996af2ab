package daemon_test

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/daemon/daemontest"
)

// systemd returns a notification socket, and a function that waits for the next notification.
func systemd(t *testing.T) (socket string, told func() string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "notify")
	notify, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { notify.Close() })
	return socket, func() string {
		t.Helper()
		notify.SetReadDeadline(time.Now().Add(time.Minute))
		buf := make([]byte, 64)
		n, err := notify.Read(buf)
		if err != nil {
			t.Fatalf("nothing told to systemd: %v", err)
		}
		return string(buf[:n])
	}
}

// say sends the fake daemon a line and returns its answer.
func say(t *testing.T, addr, line string) string {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return finish(t, c, line)
}

func finish(t *testing.T, c net.Conn, line string) string {
	t.Helper()
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	fmt.Fprintln(c, line)
	answer, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		t.Fatalf("%q was answered %q, %v", line, answer, err)
	}
	return strings.TrimSpace(answer)
}

func expect(t *testing.T, told func() string, want ...string) {
	t.Helper()
	for _, w := range want {
		if got := told(); got != w {
			t.Fatalf("systemd was told %q, want %q", got, w)
		}
	}
}

func TestReload(t *testing.T) {
	file := writeFile(t, "word: one\nlog: {level: warn}\n")
	socket, told := systemd(t)
	cmd := fakeCommand(t, "--config", file, "--log-format=json")
	cmd.Env = append(cmd.Env, "NOTIFY_SOCKET="+socket)
	p := daemontest.Start(t, cmd)
	expect(t, told, "READY=1")
	reload := func(text, word string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		p.Signal(syscall.SIGHUP)
		expect(t, told, "RELOADING=1", "READY=1")
		if got := say(t, p.Facts["listen"], "who"); !strings.HasSuffix(got, " "+word) {
			t.Errorf("after %q it says %q, want %s", text, got, word)
		}
	}
	reload("word: two\nlog: {level: info}\nlisten: 127.0.0.1:1\n", "two")
	reload("wurd: three\nword: three\n", "two")      // a fault: nothing changes
	reload("word: unspeakable\ndeaf: true\n", "two") // nor when a hook refuses
	reload("word: four\nlisten: 127.0.0.1:1\nlog: {level: info}\n", "four")
	log := p.Stop()
	for _, want := range []string{
		`"msg":"settings read again","changed":3,"after_restart":1`,
		`"key":"word","was":"one","is":"two","takes_effect":"now"`,
		`"key":"log.level","was":"warn","is":"info","takes_effect":"now"`,
		`"key":"listen","was":"127.0.0.1:0","is":"127.0.0.1:1","takes_effect":"after a restart"`,
		`nothing was changed: ` + file + `:1:1: wurd: unknown key; did you mean word?`,
		`nothing was changed: word: nobody can say that`,
		`"key":"word","was":"two","is":"four","takes_effect":"now"`,
		`"msg":"noted","change":"{word two four true}"`,
		`"msg":"noted","change":"{listen 127.0.0.1:0 127.0.0.1:1 false}"`,
	} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %s:\n%s", want, log)
		}
	}
}

func TestDrain(t *testing.T) {
	p := daemontest.Start(t, fakeCommand(t, "--word=x"))
	p.Signal(syscall.SIGUSR1)
	if status, _, stderr := p.Wait(); status != 0 || !strings.Contains(stderr, "draining") {
		t.Errorf("status %d:\n%s", status, stderr)
	}
}

func TestHandOver(t *testing.T) {
	socket, told := systemd(t)
	cmd := fakeCommand(t, "--word=x")
	cmd.Env = append(cmd.Env, "NOTIFY_SOCKET="+socket)
	p := daemontest.Start(t, cmd)
	expect(t, told, "READY=1")
	addr := p.Facts["listen"]
	old := say(t, addr, "who")
	p.Signal(syscall.SIGUSR2)
	expect(t, told, "READY=1") // the successor's, which is not the service yet
	main := told()
	text, ok := strings.CutPrefix(strings.TrimSuffix(main, "\nREADY=1"), "MAINPID=")
	pid, err := strconv.Atoi(text)
	if !ok || err != nil {
		t.Fatalf("systemd was told %q", main)
	}
	successor, err := os.FindProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { successor.Kill() })
	expect(t, told, "STATUS=draining")
	if got := say(t, addr, "who"); got == old || got != text+" x" {
		t.Errorf("after the hand-over %q answers, before it %q, the successor is %d", got, old, pid)
	}
	if got, want := say(t, addr, "old one"), strings.TrimSuffix(old, "x")+"was given old one"; got != want {
		t.Errorf("a returned connection is answered %q, want %q", got, want)
	}
	say(t, addr, "old last")
	if err := successor.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	expect(t, told, "STOPPING=1")
	if status, _, stderr := p.Wait(); status != 0 {
		t.Errorf("status %d:\n%s", status, stderr)
	}
}

// A successor that fails to start changes nothing.
func TestHandOverFails(t *testing.T) {
	file := writeFile(t, "word: x\n")
	p := daemontest.Start(t, fakeCommand(t, "--config", file))
	if err := os.WriteFile(file, []byte("wurd: x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.Signal(syscall.SIGUSR2)
	p.Until("the successor did not become ready")
	if got := say(t, p.Facts["listen"], "who"); !strings.HasSuffix(got, " x") {
		t.Errorf("the daemon says %q", got)
	}
	p.Stop()
}
