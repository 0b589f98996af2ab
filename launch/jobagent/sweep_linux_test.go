package jobagent

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMain runs a job agent if a test started this process as one.
func TestMain(m *testing.M) {
	Main()
	os.Exit(m.Run())
}

// A sweep leaves nothing of an account for its next user: no processes, no files, no shared memory;
// those of others are not touched.
func TestSweep(t *testing.T) {
	if uidMap, _ := os.ReadFile("/proc/self/uid_map"); os.Geteuid() != 0 || !strings.Contains(string(uidMap), "4294967295") {
		t.Skip("this process cannot become another user")
	}
	const account, other = 1_987_654_321, 1_987_654_322
	folder, err := os.MkdirTemp("/tmp", "isthmus-sweep-") // other accounts may have no access to TMPDIR
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	if err := os.Chmod(folder, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	left := map[int]func() []string{}
	for _, uid := range []int{account, other} {
		file := filepath.Join(folder, string(rune('a'+uid%2)))
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(file, uid, uid); err != nil {
			t.Fatal(err)
		}
		id, err := unix.SysvShmGet(unix.IPC_PRIVATE, 4096, unix.IPC_CREAT|0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.SysvShmCtl(id, unix.IPC_RMID, nil) })
		var memory unix.SysvShmDesc
		if _, err := unix.SysvShmCtl(id, unix.IPC_STAT, &memory); err != nil {
			t.Fatal(err)
		}
		memory.Perm.Uid = uint32(uid)
		if _, err := unix.SysvShmCtl(id, unix.IPC_SET, &memory); err != nil {
			t.Fatal(err)
		}
		sleep := exec.Command("sleep", "1000")
		sleep.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
		if err := sleep.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- sleep.Wait() }()
		t.Cleanup(func() { sleep.Process.Kill() })
		left[uid] = func() (all []string) {
			if _, err := os.Stat(file); err == nil {
				all = append(all, "a file")
			}
			if _, err := unix.SysvShmCtl(id, unix.IPC_STAT, &memory); err == nil {
				all = append(all, "shared memory")
			}
			if othersOf(uid) {
				all = append(all, "a process")
			}
			return all
		}
	}
	if err := Sweep(&syscall.Credential{Uid: account, Gid: account}); err != nil {
		t.Error(err)
	}
	if err := RemoveFiles(&syscall.Credential{Uid: account, Gid: account}, folder); err != nil {
		t.Error(err)
	}
	if all := left[account](); len(all) > 0 {
		t.Errorf("of the account there is %v", all)
	}
	if all := left[other](); len(all) != 3 {
		t.Errorf("of the other account there is %v", all)
	}
}

// Owners and creators count, whatever columns a kernel adds.
func TestObjectsOfAnAccount(t *testing.T) {
	const list = "       key      semid perms      nsems   uid   gid  cuid  cgid      otime      ctime\n" +
		"         0          3   600          1  1000  1000     0     0          0          1\n" +
		"         0          7   600          1     0     0  1000     0          0          1\n" +
		"         0       1000  1000       1000     1  1000     1  1000       1000       1000\n" + "torn 1000\n"
	if got := objectsOf(list, "semid", "1000"); len(got) != 2 || got[0] != 3 || got[1] != 7 {
		t.Errorf("%v", got)
	}
	if got := objectsOf("", "semid", "1000"); got != nil {
		t.Errorf("%v", got)
	}
}

// What a job has left whose guard was killed is ended and reaped: also what has a session of its own. Another job's guard in
// that account is not touched.
func TestEndOrphans(t *testing.T) {
	if uidMap, _ := os.ReadFile("/proc/self/uid_map"); os.Geteuid() != 0 || !strings.Contains(string(uidMap), "4294967295") {
		t.Skip("this process cannot become another user")
	}
	if err := AdoptOrphans(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) })
	account := &syscall.Credential{Uid: 1_987_654_323, Gid: 1_987_654_323}
	start := func(argv ...string) *exec.Cmd {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Credential: account}
		return cmd
	}
	guard := start("sleep", "1000")
	if err := guard.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { guard.Process.Kill(); guard.Wait() })
	if err := start("sh", "-c", "setsid sleep 1000 & sleep 1000 & exit 0").Run(); err != nil {
		t.Fatal(err)
	}
	except := []int{guard.Process.Pid, os.Getpid()}
	if left := orphansOf(os.Getpid(), int(account.Uid), except); len(left) < 2 {
		t.Fatalf("there are %v to end", left)
	}
	if err := EndOrphans(account, []int{guard.Process.Pid}); err != nil {
		t.Error(err)
	}
	if left := orphansOf(os.Getpid(), int(account.Uid), except); len(left) > 0 || isZombie(guard.Process.Pid) {
		t.Errorf("%v are left, or the guard is not", left)
	}
}
