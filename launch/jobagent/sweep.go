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
	roleSweep = "sweep" // ends all processes of its account, and removes its files from folders
	roleKill  = "kill"  // kills a process and its descendants
)

// shared lists the folders in which any account may leave files; those of /dev/mqueue are POSIX
// message queues.
var shared = []string{"/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue"}

// sweepTime bounds a sweep, and killTime the part of it until no process is left.
const (
	sweepTime = 10 * time.Second
	killTime  = 5 * time.Second
)

// Sweep ends all processes of an account that only jobs use, and removes its System V shared
// memory, semaphores and queues, and the files it owns in folder and in the folders that all
// accounts share, by a process of that account. It fails if processes are left.
func Sweep(credential *syscall.Credential, folder string) error {
	return helpOut(credential, roleSweep, folder)
}

// KillTree kills a guard and all its descendants, by a process of their account.
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

// sweep is the main function of a process that sweeps.
func sweep(folder string) error {
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
