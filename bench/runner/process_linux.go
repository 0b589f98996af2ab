package runner

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-grid/isthmus/lab/wan/star"
)

// compileBound is the timeout of a compiler.
const compileBound = time.Minute

// ErrNoCompiler says that there is no compiler, which a benchmark can do without.
var ErrNoCompiler = errors.New("no C compiler")

// Compile makes a program of C source, called name, in folder. The arguments
// come before the source's name on the compiler's command line.
func Compile(ctx context.Context, cc, folder, name string, source []byte, arguments ...string) (path string, err error) {
	if cc, err = exec.LookPath(cc); err != nil {
		return "", fmt.Errorf("%w: %w", ErrNoCompiler, err)
	}
	path = filepath.Join(folder, name)
	if err := os.WriteFile(path+".c", source, 0o600); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, compileBound)
	defer cancel()
	arguments = append(arguments[:len(arguments):len(arguments)], "-O2", "-o", path, path+".c")
	if said, err := exec.CommandContext(ctx, cc, arguments...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("compiling %s with %s: %w: %s", name, cc, err, said)
	}
	return path, nil
}

// A Command describes how to start a Process.
type Command struct {
	Args  []string // the program and its arguments
	Env   []string // in addition to this process's own environment
	CPU   int      // number of the processor that it is bound to (see OnCPU); 0: any
	Apart bool     // in UTS and IPC namespaces of its own, as on a separate machine
}

// A Process is a program at a host that takes orders.
type Process struct {
	what string // for errors
	cmd  *exec.Cmd
	wait func() error
	in   io.WriteCloser
	out  *bufio.Reader
}

// Start starts a command on a host. It is killed when ctx ends.
func Start(ctx context.Context, at *star.Space, c Command) (*Process, error) {
	cmd := exec.CommandContext(ctx, c.Args[0], c.Args[1:]...)
	if len(c.Env) > 0 {
		cmd.Env = append(os.Environ(), c.Env...)
	}
	if c.Apart {
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUTS | unix.CLONE_NEWIPC}
	}
	start := cmd.Start
	if c.CPU > 0 {
		start = func() error { return OnCPU(c.CPU, cmd.Start) }
	}
	return Attend(cmd, func() error { return at.Do(start) }, cmd.Wait)
}

// Attend starts a command that takes orders, by start, and waits for its end by wait when it is
// stopped. Its standard error is this process's.
func Attend(cmd *exec.Cmd, start, wait func() error) (*Process, error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = os.Stderr
	p := &Process{what: strings.Join(cmd.Args, " "), cmd: cmd, wait: wait, in: in, out: bufio.NewReader(out)}
	if err := start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", p.what, err)
	}
	return p, nil
}

// StartPart starts this program by start in a part that it plays for another process of itself. It
// sends the part an order, and returns it with the line that it answers within bound.
func StartPart(cmd *exec.Cmd, start func() error, order string, bound time.Duration) (p *Process, answer string, err error) {
	if p, err = Attend(cmd, start, cmd.Wait); err != nil {
		return nil, "", err
	}
	if err = p.Tell(order); err == nil {
		answer, err = p.Line(bound)
	}
	if err != nil {
		return nil, "", errors.Join(err, p.Stop())
	}
	return p, answer, nil
}

// String returns the command line.
func (p *Process) String() string { return p.what }

// PID returns the process's number.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Tell sends the process an order, one line.
func (p *Process) Tell(order string) error {
	if _, err := fmt.Fprintln(p.in, order); err != nil {
		return fmt.Errorf("%s: order %q: %w", p.what, order, err)
	}
	return nil
}

// Hear waits for a line that begins with word and scans the rest into to, as fmt.Sscan does. A
// process that writes nothing within bound is killed, so that the wait ends too.
func (p *Process) Hear(bound time.Duration, word string, to ...any) error {
	line, err := p.Line(bound)
	if err != nil {
		return fmt.Errorf("%w instead of %q", err, word)
	}
	rest, ok := strings.CutPrefix(line, word)
	if !ok {
		return fmt.Errorf("%s: said %q instead of %q", p.what, line, word)
	}
	if _, err := fmt.Sscan(rest, to...); err != nil {
		return fmt.Errorf("%s: said %q: %w", p.what, line, err)
	}
	return nil
}

// Line is Hear for any line, which it returns.
func (p *Process) Line(bound time.Duration) (string, error) {
	hung := time.AfterFunc(bound, func() { p.cmd.Process.Kill() })
	line, err := p.out.ReadString('\n')
	if !hung.Stop() {
		return "", fmt.Errorf("%s: waited %v for a line", p.what, bound)
	}
	if err != nil {
		return "", fmt.Errorf("%s: said %q and no more: %w", p.what, line, err)
	}
	return strings.TrimSuffix(line, "\n"), nil
}

// CloseInput ends the orders of the process, which then ends. Processes that wait for each other's end need that first, all of them.
func (p *Process) CloseInput() { p.in.Close() }

// stopBound is the timeout for a process to end after its last order.
const stopBound = 20 * time.Second

// Stop ends the process by closing its input, and returns how it ended. A nil Process has ended.
func (p *Process) Stop() error {
	if p == nil {
		return nil
	}
	p.in.Close()
	hung := time.AfterFunc(stopBound, func() { p.cmd.Process.Kill() })
	defer hung.Stop()
	if err := p.wait(); err != nil {
		return fmt.Errorf("%s: %w", p.what, err)
	}
	return nil
}
