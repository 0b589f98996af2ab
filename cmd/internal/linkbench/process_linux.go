package linkbench

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/internal/lab/wan/star"
)

//go:embed c/end.c
var cSource []byte

// compileBound is how long the C compiler may take.
const compileBound = time.Minute

// errNoCompiler says that there is none, which is no failure.
var errNoCompiler = errors.New("no C compiler")

// compile makes the program of the ends in C, in folder.
func compile(ctx context.Context, cc, folder string) (path string, err error) {
	if cc, err = exec.LookPath(cc); err != nil {
		return "", fmt.Errorf("%w: %w", errNoCompiler, err)
	}
	source, path := filepath.Join(folder, "end.c"), filepath.Join(folder, "end")
	if err := os.WriteFile(source, cSource, 0o600); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, compileBound)
	defer cancel()
	if said, err := exec.CommandContext(ctx, cc, "-O2", "-o", path, source).CombinedOutput(); err != nil {
		return "", fmt.Errorf("compiling the ends in C with %s: %w: %s", cc, err, said)
	}
	return path, nil
}

// An end is a process at one end of a connection.
type end struct {
	what string // for errors
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
}

// start starts an end on a host, on one processor if asked to.
func start(ctx context.Context, at *star.Space, oneCPU bool, command []string) (*end, error) {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	run := cmd.Start
	if oneCPU {
		run = func() error { return onOneCPU(cmd.Start) }
	}
	e := &end{what: strings.Join(command, " "), cmd: cmd, in: in, out: bufio.NewReader(out)}
	if err := at.Do(run); err != nil {
		return nil, fmt.Errorf("starting %s: %w", e.what, err)
	}
	return e, nil
}

// hear waits for a line that begins with word and reads what follows into to.
// An end that says nothing within bound is ended, so that the wait ends too.
func (e *end) hear(bound time.Duration, word string, to ...any) error {
	hung := time.AfterFunc(bound, func() { e.cmd.Process.Kill() })
	line, err := e.out.ReadString('\n')
	if !hung.Stop() {
		return fmt.Errorf("%s: waited %v for it to say %q", e.what, bound, word)
	}
	rest, ok := strings.CutPrefix(line, word)
	if err != nil || !ok {
		return fmt.Errorf("%s: said %q instead of %q: %w", e.what, line, word, err)
	}
	if _, err := fmt.Sscan(rest, to...); err != nil {
		return fmt.Errorf("%s: said %q: %w", e.what, line, err)
	}
	return nil
}

// stop ends the process and returns how it ended. A nil end has ended.
func (e *end) stop() error {
	if e == nil {
		return nil
	}
	e.in.Close()
	hung := time.AfterFunc(joinBound, func() { e.cmd.Process.Kill() })
	defer hung.Stop()
	if err := e.cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w", e.what, err)
	}
	return nil
}

// A duo is the two ends of a connection.
type duo struct {
	listener, dialler *end
	congestion        string // in use
}

// newDuo starts two ends and waits until they are connected. command returns
// the command line of an end that listens, or dials.
func newDuo(ctx context.Context, w *wire, oneCPU bool, command func(role ...string) []string) (_ *duo, err error) {
	d := new(duo)
	defer func() {
		if err != nil {
			err = errors.Join(err, d.stop())
		}
	}()
	if d.listener, err = start(ctx, w.left, oneCPU, command("listen", leftAddr.String())); err != nil {
		return nil, err
	}
	var port string
	if err := d.listener.hear(joinBound, "listening", &port); err != nil {
		return nil, err
	}
	if d.dialler, err = start(ctx, w.right, oneCPU, command("dial", leftAddr.String(), port)); err != nil {
		return nil, err
	}
	var other string
	err = errors.Join(d.listener.hear(joinBound, "ready", &other), d.dialler.hear(joinBound, "ready", &d.congestion))
	if err == nil && other != d.congestion {
		err = fmt.Errorf("%s: its ends use different congestion controls, %s and %s", d.dialler.what, other, d.congestion)
	}
	return d, err
}

// stop ends the one that dialled first: the other sees the end of the stream
// while it is idle.
func (d *duo) stop() error {
	if d == nil {
		return nil
	}
	return errors.Join(d.dialler.stop(), d.listener.stop())
}

// orderBound is how long an order may take: many times what the slowest does.
const orderBound = time.Minute

// do has both ends carry out an order and returns the answer of the one that
// dialled.
func (d *duo) do(order string) (a, b float64, err error) {
	for _, e := range []*end{d.listener, d.dialler} {
		if _, err := fmt.Fprintln(e.in, order); err != nil {
			return 0, 0, fmt.Errorf("%s: order %q: %w", e.what, order, err)
		}
	}
	var none1, none2 float64
	err = d.dialler.hear(orderBound, "ok", &a, &b)
	return a, b, errors.Join(err, d.listener.hear(orderBound, "ok", &none1, &none2))
}
