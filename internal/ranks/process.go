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

	"github.com/isthmus-grid/isthmus/internal/jobkey"
)

// process is one rank that was started.
type process struct {
	cmd     *exec.Cmd
	outputs []*os.File // the ends of its pipes that are read here
	copying sync.WaitGroup
}

// start starts a rank. Its output goes through pipes of our own rather than
// os/exec's, because what the rank leaves behind may hold them open: wait can
// then end that first, and need not take it for a failure of the rank.
func start(ctx context.Context, j Job, rank int, place string, outputs *outputs) (*process, error) {
	cmd := exec.CommandContext(ctx, j.Argv[0], j.Argv[1:]...)
	cmd.Env = environment(j, rank, place)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that a signal reaches what it starts, too
	cmd.Cancel = func() error { return signalGroup(cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = grace
	p := &process{cmd: cmd}
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			f.Close()
		}
	}()
	stdout, stderr := outputs.of(rank)
	for _, to := range []struct {
		file  *io.Writer
		lines io.Writer
	}{{&cmd.Stdout, stdout}, {&cmd.Stderr, stderr}} {
		r, w, err := os.Pipe()
		if err != nil {
			p.closeOutputs()
			return nil, err
		}
		*to.file = w
		p.outputs, theirs = append(p.outputs, r), append(theirs, w)
		p.copying.Go(func() {
			io.Copy(to.lines, r)
			r.Close() // when nobody takes its lines, it learns so by SIGPIPE
		})
	}
	if rank == 0 {
		stdin, feed, err := input(j.Stdin)
		if err != nil {
			p.closeOutputs()
			return nil, err
		}
		cmd.Stdin = stdin
		if feed != nil {
			theirs = append(theirs, stdin.(*os.File))
			defer func() { go feed() }() // ends with the input, or when nobody reads it any more
		}
	}
	if err := cmd.Start(); err != nil {
		p.closeOutputs()
		return nil, err
	}
	return p, nil
}

// environment is the rank's. What says otherwise where its peers are goes:
// this process may be a rank of another job.
func environment(j Job, rank int, place string) []string {
	env := slices.DeleteFunc(append(os.Environ(), j.Env...), func(v string) bool {
		return strings.HasPrefix(v, EnvHelper+"=") || strings.HasPrefix(v, EnvDir+"=")
	})
	return append(env, jobkey.EnvKey+"="+j.Key.String(), place,
		EnvRank+"="+strconv.Itoa(rank), EnvSize+"="+strconv.Itoa(j.Size))
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

// wait returns when the rank, what it started and the copying of its output
// have ended. The error is the rank's own.
func (p *process) wait() error {
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

func (p *process) closeOutputs() {
	for _, f := range p.outputs {
		f.SetReadDeadline(time.Unix(1, 0))
	}
	p.copying.Wait()
}

func (p *process) status() int {
	if ws, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return p.cmd.ProcessState.ExitCode()
}

// startStatus is the status of a program that could not be started.
func startStatus(err error) int {
	if errors.Is(err, fs.ErrPermission) {
		return 126
	}
	return 127
}

func signalGroup(pid int, sig syscall.Signal) error { return syscall.Kill(-pid, sig) }
