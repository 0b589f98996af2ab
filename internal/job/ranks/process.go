package ranks

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-grid/isthmus/internal/job/jobgroups"
	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
)

// Spec describes how to start one process.
type Spec struct {
	Argv []string
	Dir  string   // its working directory; empty: this process's
	Env  []string // the complete environment

	// Stdin is its standard input; nil for none. A file is passed to the process; it belongs to the
	// caller, which may close it after Start.
	Stdin io.Reader

	// Stdout and Stderr receive its output, each from one goroutine. If a Write fails, the process
	// gets SIGPIPE.
	Stdout, Stderr io.Writer

	// Attr holds further attributes for its start; nil for none. Start sets Setpgid in it.
	Attr *syscall.SysProcAttr

	// Extra files are its descriptors from 3 on; fewer than jobkey.KeyFD - 3.
	Extra []*os.File

	// Key, of jobkey.Key.File, is its descriptor jobkey.KeyFD; nil for none. The caller keeps
	// ownership.
	Key *os.File
}

// Process is a started process, in its own process group.
type Process struct {
	cmd     *exec.Cmd
	outputs []*os.File // the read ends of its pipes
	copying sync.WaitGroup

	mu   sync.Mutex
	lost error // why some of its output was lost; guarded by mu
}

// Start starts a process. When ctx ends, its group gets SIGTERM and, 2 s later, the process
// SIGKILL. Call Wait once.
//
// Output goes through our own pipes rather than os/exec's, because remaining children of the
// process may hold them open: this way Wait can end those first, and need not treat them as a
// failure of the process.
func Start(ctx context.Context, s Spec) (*Process, error) {
	cmd := exec.CommandContext(ctx, s.Argv[0], s.Argv[1:]...)
	cmd.Env, cmd.Dir, cmd.Stdin, cmd.ExtraFiles = s.Env, s.Dir, s.Stdin, s.files()
	cmd.SysProcAttr = s.Attr
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true // so that a signal also reaches its children
	cmd.Cancel = func() error { return signalGroup(cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = grace
	p := &Process{cmd: cmd}
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			f.Close()
		}
	}()
	for _, to := range []struct {
		file *io.Writer
		out  io.Writer
	}{{&cmd.Stdout, s.Stdout}, {&cmd.Stderr, s.Stderr}} {
		r, w, err := os.Pipe()
		if err != nil {
			p.closeOutputs()
			return nil, err
		}
		*to.file = w
		p.outputs, theirs = append(p.outputs, r), append(theirs, w)
		p.copying.Go(func() {
			p.outputFailed(passOn(to.out, r))
			r.Close() // if its output is no longer read, it gets SIGPIPE
		})
	}
	if err := cmd.Start(); err != nil {
		p.closeOutputs()
		return nil, explained(err, cmd)
	}
	return p, nil
}

// outputFailed records why output was lost, if it was.
func (p *Process) outputFailed(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lost == nil {
		p.lost = err
	}
}

// OutputError returns why some of the process's output was lost, such as a full disk; nil if none was, or
// if there is no reader any more: of that the process itself hears, by SIGPIPE. It is valid once Wait has
// returned.
func (p *Process) OutputError() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if errors.Is(p.lost, syscall.EPIPE) {
		return nil
	}
	return p.lost
}

// files are the process's descriptors from 3 on.
func (s Spec) files() []*os.File {
	if s.Key == nil {
		return s.Extra
	}
	all := make([]*os.File, jobkey.KeyFD-2) // nil: the descriptor is closed
	copy(all, s.Extra)
	all[jobkey.KeyFD-3] = s.Key
	return all
}

// passOn copies the data of a pipe until its end or, after the pipe's deadline, what is in it then:
// on a busy machine the copy may run later than that. It returns the error of a write.
func passOn(to io.Writer, r *os.File) error {
	if _, err := io.Copy(to, r); !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	r.SetReadDeadline(time.Time{})
	raw, err := r.SyscallConn()
	if err != nil {
		return nil
	}
	buf := make([]byte, 32<<10)
	for left := maxInPipe; left > 0; {
		n := 0
		raw.Read(func(fd uintptr) bool { // never waits
			n, _ = unix.Read(int(fd), buf)
			return true
		})
		if n <= 0 {
			return nil
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return err
		}
		left -= n
	}
	return nil
}

// maxInPipe bounds the data read from a pipe to which other processes may still write: the default
// capacity of a pipe.
const maxInPipe = 1 << 20

// start starts a rank of a job.
func start(ctx context.Context, j Job, rank int, place string, key *os.File, output Output) (*Process, error) {
	s := Spec{Argv: j.Argv, Env: environment(j, rank, place), Key: key, Attr: dieWithParent()}
	var err error
	if s.Stdout, s.Stderr, err = output.Of(Place{Host: j.Label, Rank: rank}); err != nil {
		return nil, err
	}
	if rank != 0 {
		return Start(ctx, s)
	}
	stdin, feed, err := input(j.Stdin)
	if err != nil {
		return nil, err
	}
	s.Stdin = stdin
	p, err := Start(ctx, s)
	if feed != nil {
		stdin.(*os.File).Close()
		go feed(p) // ends with the input, or when the pipe has no reader
	}
	return p, err
}

// environment is the rank's environment. Variables that contradict the location of its peers, their
// groups or the key are removed: this process may be a rank of another job.
func environment(j Job, rank int, place string) []string {
	env := slices.DeleteFunc(append(os.Environ(), j.Env...), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return name == EnvHelper || name == EnvDir || name == jobgroups.Env || name == jobkey.EnvKey
	})
	return append(append(env, place), Environment(j.Groups, rank, j.Size)...)
}

// Environment returns the variables that tell a rank its place in the job, and that jobkey.KeyFD
// has the job's key; EnvHelper, which depends on the node, is not among them.
func Environment(groups jobgroups.Layout, rank, size int) []string {
	env := []string{jobkey.EnvKeyFD + "=" + strconv.Itoa(jobkey.KeyFD), EnvRank + "=" + strconv.Itoa(rank), EnvSize + "=" + strconv.Itoa(size)}
	if len(groups) > 0 {
		env = append(env, jobgroups.Env+"="+groups.String())
	}
	return env
}

// SpareEnvironment returns what tells a process of a job with spare numbers about them: how many there are,
// and which ranks the processes that have one so far go on with.
func SpareEnvironment(spares int, replacements []uint32) []string {
	var list []string
	for _, rank := range replacements {
		list = append(list, strconv.FormatUint(uint64(rank), 10))
	}
	return []string{EnvSpares + "=" + strconv.Itoa(spares), EnvReplacements + "=" + strings.Join(list, ",")}
}

// input is what rank 0 reads instead of r. It does not get a terminal: the rank is in its own
// process group, and the kernel stops background processes that read from a terminal. So feed
// copies the terminal's input, as the rank wants it and as long as this process itself is in the
// foreground. If feed is not nil, the caller closes the file once the rank has it, and calls feed with the
// process, nil if there is none.
func input(r io.Reader) (stdin io.Reader, feed func(*Process), err error) {
	terminal, ok := r.(*os.File)
	switch {
	case ok && !isTerminal(terminal):
		return terminal, nil, nil // not this session's terminal
	case ok && !isForeground(terminal):
		return nil, nil, nil
	case r == nil:
		return nil, nil, nil
	}
	theirs, ours, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	return theirs, func(p *Process) {
		defer ours.Close()
		switch {
		case p == nil:
		case terminal != nil:
			feedTerminal(ours, terminal, p.PID())
		default:
			io.Copy(ours, r)
		}
	}, nil
}

// isTerminal reports whether a file is the terminal of this process's session.
func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	return err == nil
}

// isForeground reports whether this process may read its session's terminal.
func isForeground(terminal *os.File) bool {
	group, err := unix.IoctlGetInt(int(terminal.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// Wait returns when the process, its children and the copying of its output have ended. The error
// is the process's own, as of exec.Cmd.Wait.
func (p *Process) Wait() error {
	err := p.cmd.Wait()
	signalGroup(p.cmd.Process.Pid, syscall.SIGKILL) // its remaining children
	// Children that moved to another group may hold the pipes; Wait does not wait for those.
	late := time.AfterFunc(grace, func() {
		for _, f := range p.outputs {
			f.SetReadDeadline(time.Unix(1, 0))
		}
	})
	defer late.Stop()
	p.copying.Wait()
	return err
}

func (p *Process) closeOutputs() {
	for _, f := range p.outputs {
		f.SetReadDeadline(time.Unix(1, 0))
	}
	p.copying.Wait()
}

// PID returns the id of the process, which is also that of its group.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Signal sends a signal to the process and its children. It must not be called after Wait has
// returned.
func (p *Process) Signal(sig syscall.Signal) error { return signalGroup(p.cmd.Process.Pid, sig) }

// Status returns how the process ended, as in shells: its exit status, or 128 + the
// signal that ended it. It is valid once Wait has returned.
func (p *Process) Status() int {
	if sig := p.Killer(); sig != 0 {
		return 128 + int(sig)
	}
	return p.cmd.ProcessState.ExitCode()
}

// Killer returns the signal that ended the process, 0 if none did. It is valid once
// Wait has returned.
func (p *Process) Killer() syscall.Signal {
	if ws, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return ws.Signal()
	}
	return 0
}

func signalGroup(pid int, sig syscall.Signal) error { return syscall.Kill(-pid, sig) }
