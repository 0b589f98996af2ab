package ranks

import (
	"context"
	"errors"
	"io"
	"io/fs"
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

// Spec says how one process starts.
type Spec struct {
	Argv []string
	Dir  string   // its working directory; empty: this process's
	Env  []string // all of it

	// Stdin is what it reads; nil: nothing. A file is given to it; it belongs to the
	// caller, who may close it after Start.
	Stdin io.Reader

	// Stdout and Stderr take what it writes, each from one goroutine. Where a Write
	// fails, the process learns so by SIGPIPE.
	Stdout, Stderr io.Writer

	// Attr may say more of how it starts; nil: nothing. Start sets Setpgid in it.
	Attr *syscall.SysProcAttr

	// Extra files are its descriptors from 3 on; fewer than jobkey.KeyFD - 3.
	Extra []*os.File

	// Key, of jobkey.Key.File, is its descriptor jobkey.KeyFD; nil: it gets none. It
	// stays the caller's.
	Key *os.File
}

// Process is one that was started, in a process group of its own.
type Process struct {
	cmd     *exec.Cmd
	outputs []*os.File // the ends of its pipes that are read here
	copying sync.WaitGroup
}

// Start starts a process. When ctx ends, its group gets SIGTERM and, 2 s later, the
// process SIGKILL. Call Wait once.
//
// Output goes through pipes of our own rather than os/exec's, because what the
// process leaves behind may hold them open: Wait can then end that first, and need
// not take it for a failure of the process.
func Start(ctx context.Context, s Spec) (*Process, error) {
	cmd := exec.CommandContext(ctx, s.Argv[0], s.Argv[1:]...)
	cmd.Env, cmd.Dir, cmd.Stdin, cmd.ExtraFiles = s.Env, s.Dir, s.Stdin, s.files()
	cmd.SysProcAttr = s.Attr
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true // so that a signal reaches what it starts, too
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
			passOn(to.out, r)
			r.Close() // when nobody takes its lines, it learns so by SIGPIPE
		})
	}
	if err := cmd.Start(); err != nil {
		p.closeOutputs()
		return nil, err
	}
	return p, nil
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

// passOn copies what comes out of a pipe until its end or, when its deadline has passed, what
// is in it then: on a busy machine the copy may be later than that.
func passOn(to io.Writer, r *os.File) {
	if _, err := io.Copy(to, r); !errors.Is(err, os.ErrDeadlineExceeded) {
		return
	}
	r.SetReadDeadline(time.Time{})
	raw, err := r.SyscallConn()
	if err != nil {
		return
	}
	buf := make([]byte, 32<<10)
	for left := maxInPipe; left > 0; {
		n := 0
		raw.Read(func(fd uintptr) bool { // never waits
			n, _ = unix.Read(int(fd), buf)
			return true
		})
		if n <= 0 {
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
		left -= n
	}
}

// maxInPipe bounds what is read of a pipe in which others may still write: as much as the
// system lets one hold by default.
const maxInPipe = 1 << 20

// start starts a rank of a job.
func start(ctx context.Context, j Job, rank int, place string, key *os.File, output Output) (*Process, error) {
	s := Spec{Argv: j.Argv, Env: environment(j, rank, place), Key: key}
	var err error
	if s.Stdout, s.Stderr, err = output.Of(Place{Host: j.Label, Rank: rank}); err != nil {
		return nil, err
	}
	if rank == 0 {
		stdin, feed, err := input(j.Stdin)
		if err != nil {
			return nil, err
		}
		s.Stdin = stdin
		if feed != nil {
			defer func() {
				stdin.(*os.File).Close()
				go feed() // ends with the input, or when nobody reads it any more
			}()
		}
	}
	return Start(ctx, s)
}

// environment is the rank's. What says otherwise where its peers are and which
// groups they form, and another key, goes: this process may be a rank of another job.
func environment(j Job, rank int, place string) []string {
	env := slices.DeleteFunc(append(os.Environ(), j.Env...), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return name == EnvHelper || name == EnvDir || name == jobgroups.Env || name == jobkey.EnvKey
	})
	return append(append(env, place), Environment(j.Groups, rank, j.Size)...)
}

// Environment returns the variables by which a rank learns its place in the job, and that
// it has the job's key as jobkey.KeyFD; what EnvHelper says of its node is not among them.
func Environment(groups jobgroups.Layout, rank, size int) []string {
	env := []string{jobkey.EnvKeyFD + "=" + strconv.Itoa(jobkey.KeyFD), EnvRank + "=" + strconv.Itoa(rank), EnvSize + "=" + strconv.Itoa(size)}
	if len(groups) > 0 {
		env = append(env, jobgroups.Env+"="+groups.String())
	}
	return env
}

// input is what rank 0 reads in place of r. A terminal is not given to it: the
// rank is in a process group of its own, and the kernel stops those in the
// background that read. So feed copies what is typed, as long as this process
// itself is in the foreground. Where feed is not nil, the caller closes the
// file once the rank has it.
func input(r io.Reader) (stdin io.Reader, feed func(), err error) {
	if f, ok := r.(*os.File); ok {
		foreground, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
		if err != nil {
			return f, nil, nil // not this session's terminal
		}
		if foreground != unix.Getpgrp() {
			return nil, nil, nil
		}
	}
	if r == nil {
		return nil, nil, nil
	}
	theirs, ours, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	return theirs, func() {
		io.Copy(ours, r)
		ours.Close()
	}, nil
}

// Wait returns when the process, what it started and the copying of its output
// have ended. The error is the process's own, as of exec.Cmd.Wait.
func (p *Process) Wait() error {
	err := p.cmd.Wait()
	signalGroup(p.cmd.Process.Pid, syscall.SIGKILL) // what it left behind
	// What moved to another group may hold the pipes; it is not waited for.
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

// PID returns the number of the process, which is its group's, too.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Signal sends a signal to the process and what it started. Do not call it once Wait
// has returned.
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

// StartStatus is the status of a program that could not be started, as in shells: 126
// for one that is there, 127 for one that is not.
func StartStatus(err error) int {
	if errors.Is(err, fs.ErrPermission) {
		return 126
	}
	return 127
}

func signalGroup(pid int, sig syscall.Signal) error { return syscall.Kill(-pid, sig) }
