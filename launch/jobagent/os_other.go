//go:build !linux

package jobagent

import (
	"os"
	"syscall"
)

func executable() string {
	path, err := os.Executable()
	if err != nil {
		return os.Args[0]
	}
	return path
}

// restrict does nothing: only process groups contain a job's processes here.
func restrict() error { return nil }

func await(pid int) {
	for {
		got, err := syscall.Wait4(pid, nil, 0, nil)
		if got == pid || err != nil && err != syscall.EINTR {
			return
		}
	}
}

func endOrphans()       {}
func killOffspring(int) {}
func othersOf(int) bool { return false }
func removeIPC(int)     {}

// AdoptOrphans does nothing here.
func AdoptOrphans() error { return nil }

func reapOrphans(int, []int)            {}
func orphansOf(_, _ int, _ []int) []int { return nil }
