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
	const typed = "typed ahead\n"
	ahead := func() int {
		n, err := unix.IoctlGetInt(int(terminal.Fd()), unix.TIOCINQ)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	keyboard.WriteString(typed)
	testkit.Until(t, "what is typed to come", func() bool { return ahead() == len(typed) })
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if n := ahead(); n != len(typed) {
		t.Errorf("%d bytes are left of what was typed", n)
	}
	if text := testkit.Shown(t, keyboard, terminal); strings.Contains(text, "\x1b") || !strings.HasPrefix(text, "typed ahead\r\nisthmus ") {
		t.Errorf("it shows %q", text)
	}
}
