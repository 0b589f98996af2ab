package join

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/mpilib/internal/pmi"
)

func TestExchangeOf(t *testing.T) {
	const pmix = "PMIX_RANK=0 OMPI_COMM_WORLD_SIZE=2 PMIX_NAMESPACE=n PMIX_SERVER_TMPDIR=/t "
	for env, want := range map[string]Exchange{
		"PMI_RANK=0 PMI_SIZE=2 PMI_FD=7":                                  {fd: 7},
		"PMI_RANK=0 PMI_SIZE=2 PMI_FD=7 ISTHMUS_HELPER=/h":                {fd: 7},
		"PMI_RANK=0 PMI_SIZE=2 PMI_FD=7 ISTHMUS_DIR=/d ISTHMUS_JOB_KEY=K": {},
		"PMI_RANK=0 PMI_SIZE=1 PMI_FD=7":                                  {}, // there is none to agree with
		pmix + "OMPI_COMM_WORLD_LOCAL_SIZE=2":                             {folder: "/t/isthmus-1b16b1df"},
		pmix:                                                              {folder: "/t/isthmus-1b16b1df", pmix: true},
		pmix + "SLURM_STEP_NUM_NODES=1":                                   {folder: "/t/isthmus-1b16b1df", pmix: true},
		pmix + "SLURM_STEP_NUM_NODES=2":                                   {pmix: true},
		pmix + "OMPI_COMM_WORLD_LOCAL_SIZE=1":                             {pmix: true},
		"PMIX_RANK=0 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=n": {pmix: true},
		pmix + "OMPI_COMM_WORLD_LOCAL_SIZE=2 ISTHMUS_JOB_KEY=K ISTHMUS_HELPER=/h":          {},
		pmix + "OMPI_COMM_WORLD_LOCAL_SIZE=2 PMI_FD=7 ISTHMUS_HELPER=/h":                   {folder: "/t/isthmus-1b16b1df"},
	} {
		p, err := FromEnvironment(environment(env))
		if err != nil || p.Exchange != want {
			t.Errorf("%s: %+v, %v; want %+v", env, p.Exchange, err, want)
		}
	}
	for _, env := range []string{
		"PMI_RANK=0 PMI_SIZE=2", "PMI_RANK=0 PMI_SIZE=2 PMI_FD=x",
		"PMI_RANK=0 PMI_SIZE=2 PMI_FD=7 ISTHMUS_FIRST_RANK=2 ISTHMUS_SIZE=4",
	} {
		if p, err := FromEnvironment(environment(env)); err == nil {
			t.Errorf("%s: %+v", env, p.Exchange)
		}
	}
}

// A process manager serves n processes, each at a descriptor that it returns. It replaces the text of swap, if any, by
// another.
func processManager(t *testing.T, n int, swap, by string) (fds []int) {
	table := make(map[string]string)
	var mu sync.Mutex
	var waiting []net.Conn
	serve := func(conn net.Conn) {
		defer conn.Close()
		for in := bufio.NewScanner(conn); in.Scan(); {
			mu.Lock()
			f := strings.Fields(in.Text())
			value := func(i int) string { _, v, _ := strings.Cut(f[i], "="); return v }
			switch f[0] {
			case "cmd=init":
				fmt.Fprintln(conn, "cmd=response_to_init rc=0")
			case "cmd=get_my_kvsname":
				fmt.Fprintln(conn, "cmd=my_kvsname kvsname=k")
			case "cmd=put":
				rc := 0
				if table[value(2)] = value(3); value(2) == swap {
					if table[swap] = by; by == "" {
						rc = -1
					}
				}
				fmt.Fprintf(conn, "cmd=put_result rc=%d\n", rc)
			case "cmd=get":
				fmt.Fprintln(conn, "cmd=get_result rc=0 value="+table[value(2)])
			case "cmd=barrier_in":
				if waiting = append(waiting, conn); len(waiting) == n {
					for _, c := range waiting {
						fmt.Fprintln(c, "cmd=barrier_out")
					}
					waiting = nil
				}
			case "cmd=finalize":
				fmt.Fprintln(conn, "cmd=finalize_ack")
			case "cmd=abort":
				conn.Close() // the test waits for no process's end
			}
			mu.Unlock()
		}
	}
	var serving sync.WaitGroup
	t.Cleanup(serving.Wait)
	for range n {
		pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(pair[0]), "manager")
		conn, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		serving.Go(func() { serve(conn) })
		fds = append(fds, pair[1])
	}
	return fds
}

// complete completes the places of n processes at once.
func complete(ctx context.Context, n int, place func(rank int) *Place) (all []*Place, err error) {
	errs := make([]error, n)
	var at sync.WaitGroup
	for rank := range n {
		p := place(rank)
		p.Rank, p.Size = rank, n
		all = append(all, p)
		at.Go(func() { errs[rank] = p.Complete(ctx, time.Minute) })
	}
	at.Wait()
	return all, errors.Join(errs...)
}

// leave has processes leave. Those of failed starts leave a process manager, too, in which the test would wait for them.
func leave(t *testing.T, all ...*Place) {
	t.Helper()
	for _, p := range all {
		if err := p.Leave(context.Background()); err != nil {
			t.Errorf("rank %d leaves: %v", p.Rank, err)
		}
	}
}

func wantOneKey(t *testing.T, all []*Place) {
	t.Helper()
	for _, p := range all {
		if p.Key != all[0].Key || p.Key.String() == "" || p.Dir != all[0].Dir {
			t.Errorf("rank %d has key %v and folder %s, rank 0 %v and %s", p.Rank, p.Key.ID(), p.Dir, all[0].Key.ID(), all[0].Dir)
		}
	}
}

func TestCompleteByManager(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	fds := processManager(t, 3, "", "")
	all, err := complete(t.Context(), 3, func(rank int) *Place { return &Place{Exchange: Exchange{fd: fds[rank]}} })
	if err != nil {
		t.Fatal(err)
	}
	wantOneKey(t, all)
	if info, err := os.Stat(all[0].Dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder: %v, %v", info, err)
	}
	socket := filepath.Join(all[0].Dir, "socket")
	if err := os.WriteFile(socket, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	leave(t, all[1])
	if os.Remove(socket) != nil {
		t.Error("the folder was removed while another process had its socket there")
	}
	leave(t, all[0], all[2])
	if !errors.Is(os.Chdir(all[0].Dir), os.ErrNotExist) {
		t.Error("the folder is left")
	}
}

// Where there are helpers, or several hosts, there is no folder.
func TestCompleteByManagerWithHelpers(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	fds := processManager(t, 2, "", "")
	all, err := complete(t.Context(), 2, func(rank int) *Place { return &Place{Exchange: Exchange{fd: fds[rank]}, Helper: "/h"} })
	if err != nil || all[0].Dir != "" {
		t.Errorf("%s, %v", all[0].Dir, err)
	}
	wantOneKey(t, all)
	leave(t, all...)
	fds = processManager(t, 2, "isthmus-host-1", "elsewhere")
	all, err = complete(t.Context(), 2, func(rank int) *Place { return &Place{Exchange: Exchange{fd: fds[rank]}} })
	if err == nil || strings.Count(err.Error(), "on several hosts, and this one has no helper") != 2 {
		t.Error(err)
	}
	leave(t, all...)
	fds = processManager(t, 2, "isthmus-key", "nonsense")
	all, err = complete(t.Context(), 2, func(rank int) *Place { return &Place{Exchange: Exchange{fd: fds[rank]}} })
	if err == nil || !strings.Contains(err.Error(), "rank 1 of 2: to get the job's key from rank 0") {
		t.Error(err)
	}
	leave(t, all...)
}

// A child of a rank inherits the variables, and no descriptor.
func TestCompleteOfChild(t *testing.T) {
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	fd, err := syscall.Dup(int(file.Fd())) // which Complete closes
	if err != nil {
		t.Fatal(err)
	}
	p := &Place{Rank: 1, Size: 2, Exchange: Exchange{fd: fd}}
	if err := p.Complete(t.Context(), time.Minute); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("PMI_FD=%d", fd)) || !strings.Contains(err.Error(), "with ISTHMUS_LAUNCHER=none") {
		t.Error(err)
	}
}

// A start that fails leaves no folder.
func TestFailedCompleteLeavesNothing(t *testing.T) {
	room, err := os.MkdirTemp("/tmp", "j") // short, as paths of sockets must be
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(room) })
	t.Setenv("TMPDIR", room)
	fds := processManager(t, 2, textDir, "")
	all, err := complete(t.Context(), 2, func(rank int) *Place { return &Place{Exchange: Exchange{fd: fds[rank]}} })
	if err == nil {
		t.Error("no error")
	}
	defer leave(t, all...)
	if left, err := os.ReadDir(room); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// By PMIx it is the same. Without its library processes on one host take the folder, and those of several say what to do.
func TestCompleteByPMIx(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	fds := processManager(t, 3, "", "")
	open := func(rank int) func(context.Context) (Manager, error) {
		return func(ctx context.Context) (Manager, error) { return pmi.Dial(ctx, fds[rank]) }
	}
	all, err := complete(t.Context(), 3, func(rank int) *Place { return &Place{Exchange: Exchange{pmix: true}, OpenPMIx: open(rank)} })
	if err != nil {
		t.Fatal(err)
	}
	wantOneKey(t, all)
	if key := all[0].Key.String(); !strings.HasPrefix(key, "pmix:") {
		t.Errorf("the key begins with %.8s", key)
	}
	leave(t, all...)

	broken := func(context.Context) (Manager, error) { return nil, errors.New("no library") }
	folder := filepath.Join(t.TempDir(), "f")
	all, err = complete(t.Context(), 2, func(int) *Place { return &Place{Exchange: Exchange{pmix: true, folder: folder}, OpenPMIx: broken} })
	if err != nil || all[1].Dir != folder {
		t.Errorf("%s, %v", all[1].Dir, err)
	}
	wantOneKey(t, all)
	for want, open := range map[string]func(context.Context) (Manager, error){"no library": broken, "this program in Go has no client of PMIx": nil} {
		_, err := complete(t.Context(), 2, func(int) *Place { return &Place{Exchange: Exchange{pmix: true}, OpenPMIx: open} })
		if err == nil || strings.Count(err.Error(), want) != 2 {
			t.Errorf("%v, want %q of each", err, want)
		}
	}
}

func TestCompleteByFolder(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "f")
	place := func(int) *Place { return &Place{Exchange: Exchange{folder: folder}} }
	all, err := complete(t.Context(), 3, place)
	if err != nil {
		t.Fatal(err)
	}
	wantOneKey(t, all)
	if all[2].Dir != folder {
		t.Errorf("the sockets' folder is %s", all[2].Dir)
	}
	folder = filepath.Join(folder, strings.Repeat("long", 25)) // too long for a socket
	if all, err = complete(t.Context(), 3, place); err != nil || len(all[0].Dir) > 50 {
		t.Fatalf("%+v, %v", all[0], err)
	}
	wantOneKey(t, all)
	leave(t, all[2])
	if !errors.Is(os.Chdir(all[0].Dir), os.ErrNotExist) {
		t.Error("the folder is left")
	}
	if err := os.Chmod(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := complete(t.Context(), 1, place); err == nil || !strings.Contains(err.Error(), "can be entered by others") {
		t.Error(err)
	}
}

// A rank waits for rank 0, but not for ever.
func TestCompleteWithoutRank0(t *testing.T) {
	p := &Place{Rank: 1, Size: 2, Exchange: Exchange{folder: filepath.Join(t.TempDir(), "f")}}
	if err := p.Complete(t.Context(), 10*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "rank 0 has not left it") {
		t.Error(err)
	}
}

// A job that found its folder opens PMIx to be ended; without its library the exit status has to do.
func TestAbort(t *testing.T) {
	fds := processManager(t, 2, "", "")
	opened := 0
	open := func(ctx context.Context) (Manager, error) {
		opened++
		return pmi.Dial(ctx, fds[opened-1])
	}
	broken := func(context.Context) (Manager, error) { return nil, errors.New("no library") }
	for _, c := range []struct {
		place Place
		asked bool
	}{
		{Place{Exchange: Exchange{folder: "/f"}, OpenPMIx: open}, true},
		{Place{Exchange: Exchange{folder: "/f"}, OpenPMIx: broken}, false},
		{Place{Exchange: Exchange{folder: "/f"}}, false},
		{Place{OpenPMIx: open}, false},
	} {
		if asked, err := c.place.Abort(7); asked != c.asked || err != nil {
			t.Errorf("%+v: %v, %v", c.place.Exchange, asked, err)
		}
	}
	m, err := open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p := Place{manager: m}
	if asked, err := p.Abort(7); !asked || err != nil || opened != 2 {
		t.Errorf("%v, %v, opened %d", asked, err, opened)
	}
}
