package daemon_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/daemon"
	"github.com/isthmus-grid/isthmus/internal/daemon/daemontest"
)

// fakeConfig holds the settings of a small daemon: an echo service.
type fakeConfig struct {
	Listen string      `yaml:"listen" default:"127.0.0.1:0" help:"Address to accept on."`
	Fail   string      `yaml:"fail" help:"Error to return at once."`
	Deaf   bool        `yaml:"deaf" help:"Whether to ignore the order to end."`
	Key    daemon.Path `yaml:"key" path:"file" help:"A file."`
	Busy   bool        `yaml:"busy" help:"Whether its work never ends by itself."`
	Word   string      `yaml:"word" help:"Said to who asks who is there."`
}

func (c fakeConfig) Check() error {
	if c.Listen == "nowhere" {
		return daemon.Wrong("listen", "nowhere is no place")
	}
	return nil
}

var fake = daemon.Spec[fakeConfig]{Name: "isthmus-fake", Usage: "echo what is sent", Serve: serveFake}

func serveFake(ctx context.Context, cfg fakeConfig, log *slog.Logger, ready func(...string)) error {
	if cfg.Fail != "" {
		return errors.New(cfg.Fail)
	}
	ln, err := daemon.Socket(ctx, "listen "+cfg.Listen, func() (*net.TCPListener, error) {
		ln, err := net.Listen("tcp", cfg.Listen)
		if err != nil {
			return nil, err
		}
		return ln.(*net.TCPListener), nil
	})
	if err != nil {
		return err
	}
	var word atomic.Pointer[string]
	word.Store(&cfg.Word)
	daemon.OnReload(ctx, []string{"word"}, func(next fakeConfig) (func(), error) {
		if next.Word == "unspeakable" {
			return nil, errors.New("word: nobody can say that")
		}
		return func() { word.Store(&next.Word) }, nil
	})
	daemon.OnChange(ctx, func(c daemon.Change) { log.Warn("noted", "change", fmt.Sprint(c)) })
	hooks := daemon.HooksOf(ctx)
	draining := hooks.Draining()
	hooks.CountWork("words", func() int { return len(*word.Load()) })
	stopped := make(chan struct{}) // closed when the listener is
	go func() {
		select {
		case <-draining:
		case <-ctx.Done():
		}
		ln.Close()
		close(stopped)
	}()
	log.Debug("listening") // before it can be told to end
	defer context.AfterFunc(ctx, func() {
		if cfg.Deaf {
			fmt.Println("deaf") // the test waits for this before it goes on
			select {}
		}
	})()
	ready("listen=" + ln.Addr().String())
	ready("listen=twice")
	for {
		c, err := ln.AcceptTCP()
		if err != nil {
			break
		}
		line, _ := bufio.NewReader(c).ReadString('\n')
		if strings.HasPrefix(line, "old") && hooks.Return(c, []byte(line)) == nil {
			continue
		}
		answer(c, line, *word.Load())
	}
	if cfg.Deaf {
		select {}
	}
	<-stopped
	if cfg.Busy {
		<-ctx.Done()
	}
	if !hooks.Succeeded() {
		return ctx.Err()
	}
	for hooks.LetGo(); ; { // what the successor does not understand, to the end
		select {
		case r := <-hooks.Returned():
			answer(r.Conn, "who\n", "was given "+strings.TrimSpace(string(r.First)))
			if string(r.First) == "old last\n" {
				return nil
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// answer echoes a line, or identifies the process.
func answer(c net.Conn, line, word string) {
	defer c.Close()
	if line == "who\n" {
		line = fmt.Sprintf("%d %s\n", os.Getpid(), word)
	}
	fmt.Fprint(c, line)
}

// The test binary runs the fake daemon when this variable is set.
const beFake = "BE_THE_FAKE_DAEMON"

func TestMain(m *testing.M) {
	if os.Getenv(beFake) != "" {
		daemon.Main(fake)
	}
	os.Exit(m.Run())
}

func fakeCommand(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), beFake+"=1")
	return cmd
}

// result runs the fake daemon to its end. One that serves where it should have ended is killed
// after a minute, and has status -1.
func result(t *testing.T, cmd *exec.Cmd) (status int, stdout, stderr string) {
	t.Helper()
	var out, errOut strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer time.AfterFunc(time.Minute, func() { cmd.Process.Kill() }).Stop()
	err := cmd.Wait()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errOut.String()
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "fake.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestServesUntilSignalled(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(s.String(), func(t *testing.T) {
			p := daemontest.Start(t, fakeCommand(t, "--log-level=debug", "--log-format", "json"))
			c, err := net.Dial("tcp", p.Facts["listen"])
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			c.SetDeadline(time.Now().Add(time.Minute))
			fmt.Fprintln(c, "hello")
			if line, err := bufio.NewReader(c).ReadString('\n'); line != "hello\n" {
				t.Errorf("echo %q, %v", line, err)
			}
			p.Signal(s)
			status, _, stderr := p.Wait()
			if status != 0 || !strings.Contains(stderr, `"msg":"stopping"`) || !strings.Contains(stderr, `"level":"DEBUG"`) {
				t.Errorf("status %d, stderr %s", status, stderr)
			}
		})
	}
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	cmd := fakeCommand(t, "--deaf", "--shutdown-grace=1h")
	p := daemontest.Start(t, cmd)
	p.Signal(syscall.SIGTERM)
	p.Signal(syscall.SIGINT) // a different signal: two of one kind may merge before they are received
	status, _, stderr := p.Wait()
	if status != 1 || !strings.Contains(stderr, "isthmus-fake: second signal (") ||
		!strings.Contains(stderr, "daemon_test.serveFake") && !strings.Contains(stderr, "daemon.live") {
		t.Errorf("status %d, stderr:\n%s", status, stderr)
	}
}

func TestGraceEnds(t *testing.T) {
	p := daemontest.Start(t, fakeCommand(t, "--deaf", "--shutdown-grace=10ms"))
	p.Signal(syscall.SIGTERM)
	status, stdout, stderr := p.Wait()
	if status != 1 || stdout != "deaf\n" || !strings.Contains(stderr, "serveFake(") ||
		!strings.Contains(stderr, "isthmus-fake: did not end within shutdown_grace (10ms)") {
		t.Errorf("status %d, stdout %q, stderr:\n%s", status, stdout, stderr)
	}
}

func TestEndsWithoutServing(t *testing.T) {
	good := writeFile(t, "listen: 127.0.0.1:0\n")
	bad := writeFile(t, "listn: 1\nlog: {level: loud}\n")
	for _, c := range []struct {
		name           string
		args           []string
		env            string
		status         int
		stdout, stderr string // the whole stdout; the start of stderr
	}{
		{name: "check", args: []string{"--check", "--config", good}, stdout: good + ": ok\n"},
		{name: "check without a file", args: []string{"--check"}, stdout: "settings without a file: ok\n"},
		{name: "check by environment", args: []string{"--check"}, env: "ISTHMUS_FAKE_CONFIG=" + good, stdout: good + ": ok\n"},
		{name: "check of a bad file", args: []string{"--check", "--config", bad}, status: 1,
			stderr: bad + ":1:1: listn: unknown key; did you mean listen?\n" + bad + ":2:14: log.level: \"loud\" is not one of debug, info, warn, error\n"},
		{name: "bad file", args: []string{"--config", bad}, status: 1,
			stderr: "isthmus-fake: 2 faults in the settings:\n  " + bad + ":1:1: listn: unknown key"},
		{name: "no such file", args: []string{"--config", "/no/such"}, status: 1,
			stderr: "isthmus-fake: settings file: open /no/such: no such file or directory\n"},
		{name: "Check method", args: []string{"--listen", "nowhere"}, status: 1,
			stderr: "isthmus-fake: flag --listen: listen: nowhere is no place\n"},
		{name: "bad flag value", args: []string{"--log-format=xml"}, status: 1,
			stderr: "isthmus-fake: flag --log-format: log.format: \"xml\" is not one of text, json\n"},
		{name: "bad environment", env: "ISTHMUS_FAKE_SHUTDOWN_GRACE=soon", status: 1,
			stderr: "isthmus-fake: environment ISTHMUS_FAKE_SHUTDOWN_GRACE: shutdown_grace: \"soon\" is not a duration"},
		{name: "missing named file", args: []string{"--check", "--key=/no/key"}, status: 1,
			stderr: "flag --key: key: open /no/key: no such file or directory\n"},
		{name: "unknown flag", args: []string{"--lisen=x"}, status: 2,
			stderr: "isthmus-fake: unknown flag --lisen; did you mean --listen? (--help lists them)\n"},
		{name: "flag without value", args: []string{"--listen"}, status: 2, stderr: "isthmus-fake: flag needs an argument: -listen\n"},
		{name: "argument", args: []string{"start"}, status: 2, stderr: "isthmus-fake: \"start\" is not expected here"},
		{name: "serve fails", args: []string{"--fail=no luck"}, status: 1, stderr: "isthmus-fake: no luck\n"},
		{name: "closed ready descriptor", args: []string{"--ready-fd=99"}, status: 1, stderr: "isthmus-fake: --ready-fd 99: nothing is open there"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := fakeCommand(t, c.args...)
			cmd.Env = append(cmd.Env, c.env)
			status, stdout, stderr := result(t, cmd)
			if status != c.status || stdout != c.stdout || !strings.HasPrefix(stderr, c.stderr) || c.stderr == "" && stderr != "" {
				t.Errorf("status %d, want %d\nstdout %q\n  want %q\nstderr %q\n  want %q", status, c.status, stdout, c.stdout, stderr, c.stderr)
			}
		})
	}
}

// The output of --print-config, used as settings, gives the same settings.
func TestPrintConfigIsTheSettingsInEffect(t *testing.T) {
	status, text, stderr := result(t, fakeCommand(t, "--print-config", "--listen=127.0.0.1:7", "--deaf", "--shutdown-grace=1h"))
	if status != 0 || !strings.Contains(text, "\nlisten: 127.0.0.1:7\n") || !strings.Contains(text, "\ndeaf: true\n") ||
		!strings.Contains(text, "\nshutdown_grace: 1h\n") || !strings.Contains(text, "\n#fail: \"\"\n") {
		t.Errorf("status %d, stderr %s, stdout:\n%s", status, stderr, text)
	}
	file := writeFile(t, text)
	if _, again, _ := result(t, fakeCommand(t, "--print-config", "--config", file)); again != text {
		t.Errorf("read again it prints:\n%s", again)
	}
}

func TestVersionAndHelp(t *testing.T) {
	if status, text, _ := result(t, fakeCommand(t, "--version")); status != 0 || !strings.HasPrefix(text, "isthmus-fake ") || !strings.Contains(text, "protocol 1,") {
		t.Errorf("--version: status %d, %q", status, text)
	}
	if status, text, _ := result(t, fakeCommand(t, "--help")); status != 0 || !strings.Contains(text, "--log-level") || !strings.Contains(text, "$ISTHMUS_FAKE_LOG_LEVEL") {
		t.Errorf("--help: status %d, %q", status, text)
	}
}

func TestReadyFileAndSystemd(t *testing.T) {
	dir := t.TempDir()
	ready := filepath.Join(dir, "ready")
	if err := os.WriteFile(ready, []byte("of an earlier run"), 0o600); err != nil {
		t.Fatal(err)
	}
	socket, told := systemd(t)
	cmd := fakeCommand(t, "--ready-file", ready)
	cmd.Env = append(cmd.Env, "NOTIFY_SOCKET="+socket)
	p := daemontest.Start(t, cmd)
	if got := told(); got != "READY=1" {
		t.Errorf("systemd was told %q", got)
	}
	// The file is written before systemd is notified.
	if text, err := os.ReadFile(ready); string(text) != "ready listen="+p.Facts["listen"]+"\n" {
		t.Errorf("ready file %q, %v", text, err)
	}
	p.Stop()
	if got := told(); got != "STOPPING=1" {
		t.Errorf("systemd was told %q", got)
	}
	if _, err := os.Stat(ready); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the ready file of a daemon that has ended: %v", err)
	}
}
