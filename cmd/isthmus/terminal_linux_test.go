package main

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/isthmus-grid/isthmus/cmd/internal/cmdtest"
	"github.com/isthmus-grid/isthmus/internal/testkit"
)

// A command asks its terminal nothing, which may have no answer, and leaves what was typed ahead to who reads it.
func TestTerminalIsLeftAlone(t *testing.T) {
	keyboard, terminal := testkit.Terminal(t)
	cmd := exec.Command(os.Args[0], "version")
	cmd.Env = append(cmdtest.Environment(), "TERM=xterm-256color")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, terminal, terminal
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true} // it is in the foreground
	keyboard.WriteString("typed ahead\n")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	shown := make([]byte, 1<<16)
	n, err := keyboard.Read(shown)
	if text := string(shown[:n]); err != nil || strings.Contains(text, "\x1b") || !strings.HasPrefix(text, "typed ahead\r\n") {
		t.Errorf("it shows %q, %v", text, err)
	}
	if n, err = unix.IoctlGetInt(int(terminal.Fd()), unix.TIOCINQ); n != len("typed ahead\n") {
		t.Errorf("%d bytes are left of what was typed, %v", n, err)
	}
}
