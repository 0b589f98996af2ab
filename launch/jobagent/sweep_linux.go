package jobagent

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// othersOf reports whether an account has live processes besides this one. A process sees those of
// its own account even where /proc hides others.
func othersOf(uid int) bool {
	all, _ := filepath.Glob("/proc/[0-9]*")
	return slices.ContainsFunc(all, func(dir string) bool {
		var stat syscall.Stat_t
		pid, err := strconv.Atoi(filepath.Base(dir))
		return err == nil && pid != os.Getpid() && syscall.Stat(dir, &stat) == nil && int(stat.Uid) == uid && !isZombie(pid)
	})
}

// AdoptOrphans makes this process the parent of processes whose guard, which it has started, was killed.
func AdoptOrphans() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// reapOrphans waits for an account's adopted processes that have ended, which nobody else does. Guards are left to
// who started them.
func reapOrphans(uid int, guards []int) {
	for _, pid := range childrenOf(os.Getpid()) {
		var stat syscall.Stat_t
		if !slices.Contains(guards, pid) && syscall.Stat("/proc/"+strconv.Itoa(pid), &stat) == nil && int(stat.Uid) == uid && isZombie(pid) {
			syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
		}
	}
}

// orphansOf returns the live children of a process that are an account's, except some. It asks the account's
// processes, which it sees even where /proc hides the parent.
func orphansOf(parent, uid int, except []int) (pids []int) {
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range all {
		pid, err := strconv.Atoi(filepath.Base(dir))
		var stat syscall.Stat_t
		if err != nil || slices.Contains(except, pid) || syscall.Stat(dir, &stat) != nil || int(stat.Uid) != uid {
			continue
		}
		text, _ := os.ReadFile(filepath.Join(dir, "stat"))
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if len(fields) > 1 && fields[0] != "Z" && fields[1] == strconv.Itoa(parent) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// removers remove the objects of System V inter-process communication, by the file that lists them.
// These objects outlive the processes that created them.
var removers = map[string]func(id int){
	"shm": func(id int) { unix.SysvShmCtl(id, unix.IPC_RMID, nil) },
	"sem": func(id int) { unix.Syscall6(unix.SYS_SEMCTL, uintptr(id), 0, unix.IPC_RMID, 0, 0, 0) },
	"msg": func(id int) { unix.Syscall(unix.SYS_MSGCTL, uintptr(id), unix.IPC_RMID, 0) },
}

// removeIPC removes an account's objects.
func removeIPC(uid int) {
	for kind, remove := range removers {
		text, _ := os.ReadFile("/proc/sysvipc/" + kind)
		for _, id := range objectsOf(string(text), kind+"id", strconv.Itoa(uid)) {
			remove(id)
		}
	}
}

// objectsOf returns the numbers of an account's objects in a list in the format of /proc/sysvipc.
func objectsOf(list, idColumn, uid string) (ids []int) {
	head, rows, _ := strings.Cut(list, "\n")
	columns := strings.Fields(head)
	at, owner, maker := slices.Index(columns, idColumn), slices.Index(columns, "uid"), slices.Index(columns, "cuid")
	for row := range strings.Lines(rows) {
		f := strings.Fields(row)
		if at < 0 || owner < 0 || maker < 0 || len(f) <= max(at, owner, maker) || f[owner] != uid && f[maker] != uid {
			continue
		}
		if id, err := strconv.Atoi(f[at]); err == nil {
			ids = append(ids, id)
		}
	}
	return ids
}
