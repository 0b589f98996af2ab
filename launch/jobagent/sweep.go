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

// What else a process of a job's account does for the starter, which may not do it itself.
const (
	roleSweep = "sweep" // ends all processes of its account, and removes its files from folders
	roleKill  = "kill"  // kills a process and its descendants
)

// shared are the folders in which any account may leave files; those of /dev/mqueue are
// queues of POSIX messages.
var shared = []string{"/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue"}

// sweepTime bounds a sweep, and killTime how much of it goes by until no process is left.
const (
	sweepTime = 10 * time.Second
	killTime  = 5 * time.Second
)

// Sweep ends all processes of an account that only jobs have, and removes its System V
// shared memory, semaphores and queues, and what it owns in folder and in those that all
// accounts share, by a process of that account. It fails when processes are left.
func Sweep(credential *syscall.Credential, folder string) error {
	return helpOut(credential, roleSweep, folder)
}

// KillTree kills a guard and all that descends from it, by a process of their account.
func KillTree(credential *syscall.Credential, guard int) error {
	return helpOut(credential, roleKill, strconv.Itoa(guard))
}

func helpOut(credential *syscall.Credential, words ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), sweepTime)
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

// sweep is the life of a process that sweeps.
func sweep(folder string) error {
	uid := os.Getuid()
	if uid < 1000 {
		return errors.New("a system account is not swept")
	}
	for end := time.Now().Add(killTime); ; time.Sleep(time.Millisecond) { // what is forked while it dies
		syscall.Kill(-1, syscall.SIGKILL)
		if !othersOf(uid) {
			break
		}
		if time.Now().After(end) {
			return fmt.Errorf("processes of account %d do not end within %v of SIGKILL", uid, killTime)
		}
	}
	removeIPC(uid)
	for _, dir := range append([]string{folder}, shared...) {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			info, err := e.Info()
			if err != nil {
				continue
			}
			if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) == uid {
				RemoveAll(filepath.Join(dir, e.Name()))
			}
		}
	}
	return nil
}

// killTree is the life of a process that kills others.
func killTree(word string) error {
	guard, err := strconv.Atoi(word)
	if err != nil || guard < 2 {
		return fmt.Errorf("%q is no process", word)
	}
	killOffspring(guard)
	return syscall.Kill(guard, syscall.SIGKILL)
}

// StartOf returns when a process started, of its /proc/PID/stat; 0 for one that has ended
// and only its parent has not noticed.
func StartOf(stat []byte) uint64 {
	end := bytes.LastIndexByte(stat, ')') // its name may have anything in it
	fields := strings.Fields(string(stat[end+1:]))
	if len(fields) < 20 || fields[0] == "Z" {
		return 0
	}
	n, _ := strconv.ParseUint(fields[19], 10, 64) // field 22
	return n
}
