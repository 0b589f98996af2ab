package jobagent

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// executable returns a path of the running program that is valid even when its file was replaced.
func executable() string { return "/proc/self/exe" }

// restrict prevents this thread, and what it starts, from gaining privileges by executing a
// program, and makes this process the parent of orphaned descendants.
func restrict() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("child subreaper: %w", err)
	}
	return nil
}

// await waits for the end of a child, and reaps orphans meanwhile.
func await(pid int) {
	for {
		got, err := syscall.Wait4(-1, nil, 0, nil)
		if got == pid || err != nil && err != syscall.EINTR {
			return
		}
	}
}

// endTime bounds the wait for killed processes to disappear: one that is stuck in the kernel, on a
// disk that does not respond, stays.
const endTime = 10 * time.Second

// endOrphans kills the children of this process until there are none: the children of each are
// reparented to this process.
func endOrphans() {
	for end := time.Now().Add(endTime); time.Now().Before(end); time.Sleep(time.Millisecond) {
		for _, pid := range childrenOf(os.Getpid()) {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		for {
			got, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			if err == syscall.ECHILD {
				return
			}
			if got <= 0 {
				break
			}
		}
	}
}

// killOffspring kills all descendants of the guard except this process, its agent, and waits until
// they are gone.
func killOffspring(guard int) {
	self := os.Getpid()
	for end := time.Now().Add(endTime); guard > 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
		alive := false
		for parents := []int{guard, self}; len(parents) > 0; parents = parents[1:] {
			for _, pid := range childrenOf(parents[0]) {
				if pid == self {
					continue
				}
				parents = append(parents, pid)
				alive = alive || !isZombie(pid)
				syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		if !alive {
			return
		}
	}
}

// childrenOf returns the children of a process; none if the kernel was built without
// CONFIG_PROC_CHILDREN, which distributions enable.
func childrenOf(pid int) (all []int) {
	threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, t := range threads {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, t.Name()))
		for _, word := range strings.Fields(string(text)) {
			if child, err := strconv.Atoi(word); err == nil {
				all = append(all, child)
			}
		}
	}
	return all
}

// isZombie reports whether a process has ended but has not been reaped by its parent.
func isZombie(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, state, found := strings.Cut(string(text), ") ")
	return err != nil || found && strings.HasPrefix(state, "Z")
}
