package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Three processes make up an isolated run, all of the same program:
//
//	caller --clone(NEWUSER NEWNET NEWNS NEWPID)--> init (pid 1) --> worker
//
// The caller waits and forwards signals. Init mounts, starts the worker and reaps orphans. When
// init ends, for whatever reason, the kernel kills everything left in its pid namespace; init
// itself dies with the caller (Pdeathsig) and exits with the worker. Enter returns only in the
// worker.
const (
	stageKey    = "ISTHMUS_LAB_STAGE"
	stageInit   = "init"
	stageWorker = "worker"
)

// runDir is the mount point of the lab's own tmpfs.
const runDir = "/run"

// isolated reports that Enter has done its work in this process; outerPID is the process's number
// outside, 0 if unknown.
var (
	isolated bool
	outerPID int
)

// Dir returns the lab's directory. It lies on a tmpfs that only processes of this run see and that
// disappears with them.
func Dir() string { return filepath.Join(runDir, "isthmus-lab") }

// Enter moves the rest of the program into network, mount and pid namespaces of its own, and into a
// user namespace if it lacks the privilege. It starts the same program with the same arguments
// again and returns nil in that new process, immediately if called there a second time. In the
// process that called first it does not return: it forwards SIGINT, SIGTERM, SIGHUP and SIGQUIT,
// waits, and exits with the new process's status (128 + signal when a signal ended it). An error
// means that nothing was started.
func Enter() error {
	stage := os.Getenv(stageKey)
	switch {
	case isolated:
		return nil
	case stage == stageInit && os.Getpid() == 1:
		return initMain()
	case stage == stageWorker && os.Getppid() == 1:
		enterWorker()
		return nil
	}
	code, err := superviseNamespaces()
	if err != nil {
		return err
	}
	os.Exit(code)
	panic("unreachable")
}

// superviseNamespaces runs init in new namespaces and returns its exit status.
func superviseNamespaces() (int, error) {
	// Pdeathsig fires when the thread that forked dies: this goroutine keeps it until the process
	// ends.
	runtime.LockOSThread()
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT)

	tty := foreground()
	if tty != nil {
		defer takeTerminal(tty) // a command that RunAt started may have had it
	}
	cmd, err := startInit(os.Geteuid() != 0, tty != nil)
	if errors.Is(err, os.ErrPermission) && os.Geteuid() == 0 {
		cmd, err = startInit(true, tty != nil) // root without CAP_SYS_ADMIN, as in a container
	}
	if err != nil {
		return 0, refusal(err, readText)
	}
	go func() {
		for s := range signals {
			cmd.Process.Signal(s) // an error means that it has ended
		}
	}()
	err = cmd.Wait()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		return 0, fmt.Errorf("waiting for the isolated process: %w", err)
	}
	return exitStatus(cmd.ProcessState.Sys().(syscall.WaitStatus)), nil
}

func startInit(newUser, atTerminal bool) (*exec.Cmd, error) {
	attr := &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID,
		Pdeathsig:  unix.SIGKILL,
		Setpgid:    !atTerminal, // else the terminal's signals and input would not reach it
	}
	if newUser {
		attr.Cloneflags |= unix.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = os.Args
	cmd.Env = append(os.Environ(), stageKey+"="+stageInit)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = attr
	return cmd, cmd.Start()
}

// foreground returns the terminal whose foreground group this process belongs to,
// so that Ctrl-C there signals all of it, or nil.
func foreground() *os.File {
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return nil
	}
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	if err != nil || group != unix.Getpgrp() {
		tty.Close()
		return nil
	}
	return tty
}

// takeTerminal makes this process's group the foreground of tty again and closes
// it.
func takeTerminal(tty *os.File) {
	signal.Ignore(unix.SIGTTOU) // or a background process would be stopped
	unix.IoctlSetPointerInt(int(tty.Fd()), unix.TIOCSPGRP, unix.Getpgrp())
	tty.Close()
}

func exitStatus(ws syscall.WaitStatus) int {
	if ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return ws.ExitStatus()
}

// initMain is the complete life of init. It returns only an error from before the worker's start.
func initMain() error {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT)
	oldProc, err := os.Open("/proc")
	if err != nil {
		return fmt.Errorf("opening /proc: %w", err)
	}
	if err := furnish(); err != nil {
		return err
	}
	env := append(withoutStage(os.Environ()), stageKey+"="+stageWorker, "TMPDIR="+filepath.Join(Dir(), "tmp"))
	worker, err := syscall.ForkExec("/proc/self/exe", os.Args, &syscall.ProcAttr{
		Env:   env,
		Files: []uintptr{0, 1, 2, oldProc.Fd()}, // the worker reads its outer number there
	})
	if err != nil {
		return fmt.Errorf("starting the program in its namespaces: %w", err)
	}
	oldProc.Close()
	go func() {
		for s := range signals {
			syscall.Kill(worker, s.(syscall.Signal))
		}
	}()
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, 0, nil)
		if err != nil && err != syscall.EINTR {
			return fmt.Errorf("init: waiting for the program: %w", err)
		}
		if pid == worker && (ws.Exited() || ws.Signaled()) {
			os.Exit(exitStatus(ws)) // the kernel ends all others
		}
	}
}

func withoutStage(env []string) []string {
	var out []string
	for _, e := range env {
		if !strings.HasPrefix(e, stageKey+"=") && !strings.HasPrefix(e, "TMPDIR=") {
			out = append(out, e)
		}
	}
	return out
}

// furnish prepares the new namespaces: private mounts, the lab's tmpfs, a /proc of the new pid
// namespace, writable name files, loopback, limits.
func furnish() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return refusal(fmt.Errorf("making the mounts private: %w", err), readText)
	}
	if err := unix.Mount("isthmus-lab", runDir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755"); err != nil {
		return refusal(fmt.Errorf("mounting a tmpfs on %s: %w", runDir, err), readText)
	}
	// The kernel refuses a new /proc in a container that hides parts of it; the old one serves as
	// well, since it too shows each process itself and its own network namespace.
	err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	if err != nil && !errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	if err := os.MkdirAll(filepath.Join(Dir(), "tmp"), 0o700); err != nil {
		return fmt.Errorf("making the lab's directory: %w", err)
	}
	for _, name := range []string{"hosts", "resolv.conf"} {
		if err := coverFile(name); err != nil {
			return err
		}
	}
	raiseFileLimit()
	return loopbackUp()
}

// coverFile mounts an empty file of the lab's over /etc/name, if that exists: names come from the
// lab's hosts file and no name server is asked.
func coverFile(name string) error {
	own := filepath.Join(Dir(), name)
	if err := os.WriteFile(own, []byte("# made by the lab\n"), 0o644); err != nil {
		return fmt.Errorf("making %s: %w", own, err)
	}
	err := unix.Mount(own, "/etc/"+name, "", unix.MS_BIND, "")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("laying %s over /etc/%s: %w", own, name, err)
	}
	return nil
}

// raiseFileLimit lets the lab and its children open as many files as the system allows, or as many
// as the hard limit allows if that cannot be raised.
func raiseFileLimit() {
	const want = 1 << 20
	var lim syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &lim) != nil {
		return
	}
	high := syscall.Rlimit{Cur: max(lim.Max, want), Max: max(lim.Max, want)}
	if syscall.Setrlimit(syscall.RLIMIT_NOFILE, &high) != nil {
		lim.Cur = lim.Max
		syscall.Setrlimit(syscall.RLIMIT_NOFILE, &lim) // best effort: the soft limit stays
	}
}

// loopbackUp sets up lo in the calling thread's network namespace.
func loopbackUp() error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("opening netlink: %w", err)
	}
	defer h.Close()
	lo, err := h.LinkByName("lo")
	if err == nil {
		err = h.LinkSetUp(lo)
	}
	if err != nil {
		return fmt.Errorf("setting up loopback: %w", err)
	}
	return nil
}

// enterWorker records that this is the worker and hides the stage from its children.
func enterWorker() {
	const oldProc = 3
	buf := make([]byte, 32)
	if n, err := unix.Readlinkat(oldProc, "self", buf); err == nil {
		fmt.Sscan(string(buf[:n]), &outerPID)
	}
	unix.Close(oldProc)
	os.Unsetenv(stageKey)
	isolated = true
}
