package jobagent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Further roles of a process in a job's account, for what the starter must not do itself.
const (
	roleSweep   = "sweep"   // ends all processes of its account, and removes its System V objects
	roleRemove  = "remove"  // removes its account's files from folders
	roleKill    = "kill"    // kills a process and its descendants
	roleOrphans = "orphans" // kills the children of a process that are of its account, but for some
)

// shared lists the folders in which any account may leave files; those of /dev/mqueue are POSIX
// message queues.
var shared = []string{"/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue"}

// sweepTime bounds a sweep, killTime the part of it until no process is left, and removeTime the removal of
// an account's files, of which a job may leave as many as the file system takes.
const (
	sweepTime  = 10 * time.Second
	killTime   = 5 * time.Second
	removeTime = 10 * time.Minute
)

// Sweep ends all processes of an account that only jobs use, and removes its System V shared
// memory, semaphores and queues, by a process of that account. It fails if processes are left.
func Sweep(credential *syscall.Credential) error {
	defer reapOrphans(int(credential.Uid), nil)
	return helpOut(credential, sweepTime, roleSweep)
}

// RemoveFiles removes the files that an account owns in folder and in the folders that all accounts
// share, by a process of that account.
func RemoveFiles(credential *syscall.Credential, folder string) error {
	return helpOut(credential, removeTime, roleRemove, folder)
}

// KillTree kills a guard and all its descendants, by a process of their account.
func KillTree(credential *syscall.Credential, guard int) error {
	return helpOut(credential, sweepTime, roleKill, strconv.Itoa(guard))
}

// EndOrphans kills those children of this process that are an account's and no guards, by a process of
// that account: after AdoptOrphans, what is left of jobs whose guards were killed.
func EndOrphans(credential *syscall.Credential, guards []int) error {
	defer reapOrphans(int(credential.Uid), guards)
	words := []string{roleOrphans, strconv.Itoa(os.Getpid())}
	for _, pid := range guards {
		words = append(words, strconv.Itoa(pid))
	}
	return helpOut(credential, sweepTime, words...)
}

func helpOut(credential *syscall.Credential, limit time.Duration, words ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := reexec(words[0])
	cmd.Args = append(cmd.Args, words[1:]...)
	cmd.Env = []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: credential}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("jobagent: %s: %w", words[0], err)
	}
	defer context.AfterFunc(ctx, func() { cmd.Process.Kill() })()
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("jobagent: %s of account %d: %w", words[0], credential.Uid, err)
	}
	return nil
}

// sweep is the main function of a process that sweeps.
func sweep() error {
	uid := os.Getuid()
	if uid < 1000 {
		return errors.New("a system account is not swept")
	}
	for end := time.Now().Add(killTime); ; time.Sleep(time.Millisecond) { // catches processes forked during the kill
		syscall.Kill(-1, syscall.SIGKILL)
		if !othersOf(uid) {
			break
		}
		if time.Now().After(end) {
			return fmt.Errorf("processes of account %d do not end within %v of SIGKILL", uid, killTime)
		}
	}
	removeIPC(uid)
	return nil
}

// removeFiles is the main function of a process that removes its account's files. It fails if some stay.
func removeFiles(folder string) error {
	uid := os.Getuid()
	if uid < 1000 {
		return errors.New("a system account's files are not removed")
	}
	var errs []error
	for _, dir := range append([]string{folder}, shared...) {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			info, err := e.Info()
			if err != nil {
				continue
			}
			if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) == uid {
				errs = append(errs, RemoveAll(filepath.Join(dir, e.Name())))
			}
		}
	}
	return errors.Join(errs...)
}

// orphans is the main function of a process that ends orphans: words are the process whose children they
// are, and the children that are none.
func orphans(words []string) error {
	var pids []int
	for _, w := range words {
		pid, err := strconv.Atoi(w)
		if err != nil || pid < 2 && len(pids) > 0 {
			return fmt.Errorf("%q is no process", w)
		}
		pids = append(pids, pid)
	}
	if len(pids) == 0 {
		return errors.New("no process is named")
	}
	for end := time.Now().Add(killTime); ; time.Sleep(time.Millisecond) { // their children become orphans in turn
		left := orphansOf(pids[0], os.Getuid(), append(pids[1:], os.Getpid()))
		if len(left) == 0 {
			return nil
		}
		for _, pid := range left {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		if time.Now().After(end) {
			return fmt.Errorf("processes %v do not end within %v of SIGKILL", left, killTime)
		}
	}
}

// killTree is the main function of a process that kills others.
func killTree(word string) error {
	guard, err := strconv.Atoi(word)
	if err != nil || guard < 2 {
		return fmt.Errorf("%q is no process", word)
	}
	killOffspring(guard)
	return syscall.Kill(guard, syscall.SIGKILL)
}

// StartOf returns the start time of a process from its /proc/PID/stat; 0 for a zombie.
func StartOf(stat []byte) uint64 {
	end := bytes.LastIndexByte(stat, ')') // the name may contain anything
	fields := strings.Fields(string(stat[end+1:]))
	if len(fields) < 20 || fields[0] == "Z" {
		return 0
	}
	n, _ := strconv.ParseUint(fields[19], 10, 64) // field 22
	return n
}
