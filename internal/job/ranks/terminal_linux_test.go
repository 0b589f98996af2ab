package ranks

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-grid/isthmus/internal/testkit"
)

func init() {
	parts["read on"] = func(string) { // in one thread of several
		go func() {
			fmt.Println("ready")
			io.ReadAll(os.Stdin)
		}()
		forever()
	}
	parts["poll"] = func(string) {
		fmt.Println("ready")
		unix.Poll([]unix.PollFd{{Fd: 0, Events: unix.POLLIN}}, -1)
	}
	parts["epoll"] = func(string) {
		e, err := unix.EpollCreate1(0)
		if err == nil {
			err = unix.EpollCtl(e, unix.EPOLL_CTL_ADD, 0, &unix.EpollEvent{Events: unix.EPOLLIN})
		}
		fmt.Println("ready", err)
		unix.EpollWait(e, make([]unix.EpollEvent, 1), -1)
	}
	parts["nonblocking"] = func(string) { // looks at its input now and then, perhaps
		syscall.SetNonblock(0, true)
		fmt.Println("ready")
		forever()
	}
	parts["shell"] = func(arg string) { // runs a launcher on its terminal, and reads from that afterwards
		self, _ := os.Executable()
		launcher := exec.Command(self)
		launcher.Env = append(os.Environ(), "RANKS_TEST_PART=launch", "RANKS_TEST_ARG="+arg)
		launcher.Stdin = os.Stdin
		if err := launcher.Run(); err != nil {
			fmt.Println(err)
		}
		var line string
		fmt.Scanln(&line)
		fmt.Printf("the shell read %s\n", line)
	}
}

// TestRank0ReadsTheTerminal starts a launcher on a separate terminal, as a shell would, and types a
// line. A rank that read the terminal itself would be stopped by the kernel (SIGTTIN), since it is
// in the background there.
func TestRank0ReadsTheTerminal(t *testing.T) {
	keyboard, terminal := testkit.Terminal(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), "RANKS_TEST_PART=launch", "RANKS_TEST_ARG=readline")
	cmd.Stdin = terminal
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	hung := time.AfterFunc(patience, func() { cmd.Process.Kill() })
	defer hung.Stop()
	if _, err := io.WriteString(keyboard, "typed\n"); err != nil {
		t.Error(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || strings.TrimSpace(line) != "[here:0] read typed" {
		t.Errorf("%q, %v", line, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// What is typed while a job runs that does not read it is left to the shell that the launcher returns to.
func TestTypeAheadIsLeft(t *testing.T) {
	keyboard, terminal := testkit.Terminal(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), "RANKS_TEST_PART=shell", "RANKS_TEST_ARG=print")
	cmd.Stdin = terminal
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if _, err := io.WriteString(keyboard, "typed\n"); err != nil {
		t.Fatal(err)
	}
	hung := time.AfterFunc(patience, func() { cmd.Process.Kill() })
	defer hung.Stop()
	out, err := cmd.Output()
	if err != nil || string(out) != "the shell read typed\n" {
		t.Errorf("%q, %v", out, err)
	}
}

// Wants is true while a process, or one that it has started, waits for the pipe, in whichever way, and
// false while it does something else or has not read all.
func TestWants(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	script := func(text string) Spec { return Spec{Argv: []string{"/bin/sh", "-c", text}} }
	part := func(name string) Spec {
		return Spec{Argv: []string{self}, Env: append(os.Environ(), "RANKS_TEST_PART="+name)}
	}
	for name, tc := range map[string]struct {
		spec   Spec
		write  string
		wanted bool
	}{
		"reads":                     {script("echo ready; read x"), "", true},
		"its child reads":           {script("echo ready; cat >/dev/null; true"), "", true},
		"has read some":             {script("read x; echo ready; read y"), "x\n", true},
		"a thread reads":            {part("read on"), "", true},
		"polls":                     {part("poll"), "", true},
		"polls by epoll":            {part("epoll"), "", true},
		"does not block":            {part("nonblocking"), "", true},
		"sleeps":                    {script("echo ready; exec sleep 1000"), "", false},
		"its child sleeps":          {script("echo ready; sleep 1000; true"), "", false},
		"waits for something else":  {part("polite"), "", false},
		"has more to read":          {script("echo ready; exec sleep 1000"), "more", false},
		"does not block, has more":  {part("nonblocking"), "more", false},
		"has closed its input":      {script("exec <&-; echo ready; read x; exec sleep 1000"), "", false},
		"its child has another one": {script("echo ready; cat </dev/zero >/dev/null"), "", false},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			theirs, ours, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer ours.Close()
			ready := make(chan struct{})
			said := struct{ io.Writer }{&listener{heard: func(string) { close(ready) }}}
			tc.spec.Stdin, tc.spec.Stdout, tc.spec.Stderr = theirs, said, io.Discard
			p, err := Start(ctx, tc.spec)
			theirs.Close()
			if err != nil {
				t.Fatal(err)
			}
			defer p.Wait()
			defer p.Signal(syscall.SIGKILL)
			io.WriteString(ours, tc.write)
			select {
			case <-ready:
			case <-ctx.Done():
				t.Fatal("it did not start")
			}
			for range 20 {
				if got := Wants(p.PID(), ours); got && !tc.wanted {
					t.Fatal("it is said to wait")
				}
			}
			for tc.wanted && !Wants(p.PID(), ours) {
				if ctx.Err() != nil {
					t.Fatal("it is not said to wait")
				}
			}
		})
	}
}

// A shell that reads a line of something else does so as its standard input, and then puts that back, as the one does
// that starts a process under limits.
func TestWantsOfAShell(t *testing.T) {
	files := map[string]*os.File{}
	for _, name := range []string{"input", "lines", "answers"} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		defer w.Close()
		files[name], files["to "+name] = r, w
	}
	p, err := Start(t.Context(), Spec{
		Argv: []string{"/bin/sh", "-c", "while read -r x <&3; do echo; done"}, Stdin: files["input"], Stdout: files["to answers"], Stderr: io.Discard,
		Extra: []*os.File{files["lines"]},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Wait()
	defer files["to lines"].Close()
	var over atomic.Bool
	var told sync.WaitGroup
	told.Go(func() { // one line at a time, so that the shell waits for each
		answer := make([]byte, 1)
		for !over.Load() {
			if _, err := files["to lines"].WriteString("line\n"); err != nil {
				t.Error(err)
				return
			}
			if _, err := files["answers"].Read(answer); err != nil {
				t.Error(err)
				return
			}
		}
	})
	defer told.Wait()
	defer over.Store(true)
	for n := range 3000 {
		if Wants(p.PID(), files["to input"]) {
			t.Fatalf("at look %d it is said to wait for its input", n)
		}
	}
}
