package ranks

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Wants reports whether a process, or one that it has started, waits to read from a pipe of which this
// process has the write end, and has read all that was written. Where the system does not say, it
// reports true. What is not wanted is left to whoever reads a terminal, or another input, next.
func Wants(pid int, pipe *os.File) bool {
	raw, err := pipe.SyscallConn()
	if err != nil {
		return false
	}
	name, unread := "", 0
	if raw.Control(func(fd uintptr) {
		name, _ = os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
		unread, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ)
	}) != nil || unread > 0 {
		return false // it is closed, or has more to bring
	}
	d := demand{pipe: name, left: maxTasks}
	return name == "" || d.hasReader(pid)
}

// maxTasks bounds the threads that are looked at: of a process with more, what it wants is not known.
const maxTasks = 4096

// demand looks for a reader of a pipe.
type demand struct {
	pipe string // as /proc names it
	left int    // threads that may still be looked at
}

// hasReader reports whether a process, or one that descends from it, waits for the pipe, or may do so.
func (d *demand) hasReader(pid int) bool {
	dir := fmt.Sprintf("/proc/%d/", pid)
	if d.isStdin(dir) && isNonblocking(dir) { // it may look now and then, and never wait
		return true
	}
	tasks, _ := os.ReadDir(dir + "task") // none once it has ended
	for _, t := range tasks {
		if d.left--; d.left < 0 {
			return true
		}
		task := dir + "task/" + t.Name() + "/"
		slept := sleeps(task)
		call, err := os.ReadFile(task + "syscall")
		if isUnknown(err) {
			return true
		}
		if d.isReading(dir, string(call)) {
			// Descriptors were looked at after the call. A thread that has run since then, such as a shell's that puts its
			// input back, may not be in it any more, or in another one.
			if again, err := os.ReadFile(task + "syscall"); isUnknown(err) || bytes.Equal(again, call) && slept == sleeps(task) {
				return true
			}
		}
		children, err := os.ReadFile(task + "children")
		if isUnknown(err) {
			return true
		}
		for _, word := range strings.Fields(string(children)) {
			if child, err := strconv.Atoi(word); err == nil && d.hasReader(child) {
				return true
			}
		}
	}
	return false
}

// sleeps returns how often a thread has waited for something, as /proc says it.
func sleeps(task string) string {
	status, _ := os.ReadFile(task + "status")
	_, rest, _ := strings.Cut(string(status), "\nvoluntary_ctxt_switches:")
	count, _, _ := strings.Cut(rest, "\n")
	return count
}

// isUnknown reports whether a file of /proc does not say what it is about, otherwise than because its
// process has ended. Kernels without these files have none for this process.
func isUnknown(err error) bool {
	if err == nil || errors.Is(err, syscall.ESRCH) {
		return false
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return true
	}
	self := fmt.Sprintf("/proc/self/task/%d/", os.Getpid())
	for _, file := range []string{"syscall", "children"} {
		if _, err := os.Stat(self + file); err != nil {
			return true
		}
	}
	return false
}

// The calls of amd64 that other processors do not have.
const (
	oldPoll      = 7
	oldSelect    = 23
	oldEpollWait = 232
)

// isReading reports whether a system call that a thread is in, as /proc shows it, waits for the pipe.
// dir is that of its process.
func (d *demand) isReading(dir, call string) bool {
	words := strings.Fields(call)
	if len(words) < 4 { // it runs
		return false
	}
	number, err := strconv.Atoi(words[0])
	if err != nil {
		return false
	}
	argument := func(i int) uint64 {
		n, _ := strconv.ParseUint(strings.TrimPrefix(words[1+i], "0x"), 16, 64)
		return n
	}
	old := func(n int) bool { return runtime.GOARCH == "amd64" && number == n }
	stack, err := strconv.ParseUint(strings.TrimPrefix(words[len(words)-2], "0x"), 16, 64)
	switch {
	case err != nil || strconv.IntSize == 64 && stack < 1<<32: // a program of 32 bits: its calls have other numbers
		return d.isHeld(dir)
	case number == unix.SYS_READ, number == unix.SYS_READV, number == unix.SYS_PREADV2, number == unix.SYS_SPLICE, number == unix.SYS_TEE:
		return d.is(dir, int(int32(argument(0))))
	case number == unix.SYS_SENDFILE:
		return d.is(dir, int(int32(argument(1))))
	case number == unix.SYS_PPOLL, old(oldPoll): // which descriptors it waits for is in its memory
		return argument(1) > 0 && d.isHeld(dir)
	case number == unix.SYS_PSELECT6, old(oldSelect):
		return argument(0) > 0 && d.isHeld(dir)
	case number == unix.SYS_EPOLL_PWAIT, number == unix.SYS_EPOLL_PWAIT2, old(oldEpollWait):
		return d.isPolled(dir, int(int32(argument(0))))
	case number == unix.SYS_IO_URING_ENTER:
		return d.isHeld(dir)
	}
	return false
}

// isPolled reports whether an epoll instance of a process waits for the pipe.
func (d *demand) isPolled(dir string, instance int) bool {
	info, err := os.ReadFile(dir + "fdinfo/" + strconv.Itoa(instance))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(info)) {
		text, is := strings.CutPrefix(line, "tfd:")
		if words := strings.Fields(text); is && len(words) > 0 {
			if fd, err := strconv.Atoi(words[0]); err == nil && d.is(dir, fd) {
				return true
			}
		}
	}
	return false
}

// is reports whether a descriptor of a process is the pipe.
func (d *demand) is(dir string, fd int) bool {
	name, err := os.Readlink(dir + "fd/" + strconv.Itoa(fd))
	return err == nil && name == d.pipe
}

func (d *demand) isStdin(dir string) bool { return d.is(dir, 0) }

// isHeld reports whether any descriptor of a process is the pipe.
func (d *demand) isHeld(dir string) bool {
	all, _ := os.ReadDir(dir + "fd")
	return slices.ContainsFunc(all, func(e fs.DirEntry) bool {
		name, err := os.Readlink(dir + "fd/" + e.Name())
		return err == nil && name == d.pipe
	})
}

// isNonblocking reports whether the standard input of a process does not block.
func isNonblocking(dir string) bool {
	info, err := os.ReadFile(dir + "fdinfo/0")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(info)) {
		if text, is := strings.CutPrefix(line, "flags:"); is {
			flags, err := strconv.ParseUint(strings.TrimSpace(text), 8, 64)
			return err != nil || flags&syscall.O_NONBLOCK != 0
		}
	}
	return false
}

// How often it is looked whether a process wants what a terminal has.
const (
	firstLook = 5 * time.Millisecond
	lastLook  = 100 * time.Millisecond
)

// feedTerminal passes what is typed on to a process, when it wants it: what it does not read stays for
// whoever reads the terminal next. It returns at the end of the input, and when the pipe has no reader.
func feedTerminal(pipe, terminal *os.File, pid int) {
	buf := make([]byte, 4096) // a line
	for isTyped(terminal, pipe) {
		for wait := firstLook; !isForeground(terminal) || !Wants(pid, pipe); wait = min(2*wait, lastLook) {
			if hasNoReader(pipe, wait) {
				return
			}
		}
		n, err := terminal.Read(buf)
		if err == nil && n > 0 {
			_, err = pipe.Write(buf[:n])
		}
		if err != nil || n == 0 {
			return
		}
	}
}

// isTyped waits until something can be read from a terminal. It reports false if the pipe has no reader.
func isTyped(terminal, pipe *os.File) bool {
	fds := []unix.PollFd{{Fd: int32(terminal.Fd()), Events: unix.POLLIN}, {Fd: int32(pipe.Fd())}}
	for {
		_, err := unix.Poll(fds, -1)
		switch {
		case err == unix.EINTR:
		case err != nil || fds[1].Revents != 0:
			return false
		case fds[0].Revents != 0:
			return true
		}
	}
}

// hasNoReader waits for a time, or until a pipe has no reader, and reports whether that is so.
func hasNoReader(pipe *os.File, most time.Duration) bool {
	fds := []unix.PollFd{{Fd: int32(pipe.Fd())}}
	unix.Poll(fds, int(most.Milliseconds()))
	return fds[0].Revents != 0
}
