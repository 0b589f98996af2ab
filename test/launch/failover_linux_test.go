//go:build system

package launch

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/launch/gossip"
	"github.com/isthmus-grid/isthmus/mpilib"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// ringKey marks, in the environment, a process as one of ring; failoverKey is the number of jobs that
// measure, without it one.
const (
	ringKey     = "ISTHMUS_TEST_RING"
	failoverKey = "ISTHMUS_TEST_FAILOVER"
)

// ring is a process of a job with replicas. A number goes round all ranks. In every third round replica 0 of another
// rank dies before it sends the number on, while replica 0 of the next one waits for it.
// Files say when a process died and when the next one got the number. The variable is a folder for them, and after a
// colon "kill", or "freeze": only replica 0 of rank 0 is lost then, by what is done to its host.
func ring() error {
	ctx, cancel := context.WithTimeout(context.Background(), labtest.Patience)
	defer cancel()
	w, err := mpilib.Init(ctx)
	if err != nil {
		return err
	}
	c := w.Comm()
	dir, how, _ := strings.Cut(os.Getenv(ringKey), ":")
	note := func(what string, rank int) error {
		name := filepath.Join(dir, fmt.Sprintf("%s.%d", what, rank))
		if err := os.WriteFile(name+".new", fmt.Append(nil, time.Now().UnixNano()), 0o644); err != nil {
			return err
		}
		return os.Rename(name+".new", name)
	}
	me, n := c.Rank(), c.Size()
	deaths := 1
	if how == "kill" {
		deaths = n - 1
	}
	if err := note("pid", os.Getpid()); err != nil {
		return err
	}
	if how == "freeze" { // a host of which no other has heard yet is given longer
		select {
		case <-time.After(heardOf):
		case <-ctx.Done():
		}
	}
	number := []int{0}
	for round := range 3 * (deaths + 1) {
		dies := -1
		if round%3 == 2 && round/3 < deaths {
			dies = round / 3
		}
		receive := func() error {
			_, err := mpilib.Recv(ctx, c, number, (me+n-1)%n, 0)
			if err == nil && dies == me-1 && dies >= 0 && w.Replica() == 0 {
				err = note("heard", me)
			}
			return err
		}
		if me > 0 {
			if err := receive(); err != nil {
				return err
			}
		}
		if dies == me && w.Replica() == 0 {
			if err := note("died", me); err != nil {
				return err
			}
			if how == "kill" {
				syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}
			<-ctx.Done()
			return ctx.Err()
		}
		if err := mpilib.Send(ctx, c, number, (me+1)%n, 0); err != nil {
			return err
		}
		if me == 0 {
			if err := receive(); err != nil {
				return err
			}
		}
	}
	for how == "freeze" && ctx.Err() == nil { // the job goes on while the test looks at what is left of the host
		if _, err := os.Stat(filepath.Join(dir, "go")); err == nil {
			break
		}
		pause()
	}
	if me == 0 {
		fmt.Println("round it went")
	}
	return w.Finalize(ctx)
}

// ringJob is a running job of ring.
type ringJob struct {
	*labtest.Background
	w   *world
	dir string
}

func (w *world) startRing(t *testing.T, how, hosts string) *ringJob {
	t.Helper()
	j := &ringJob{w: w, dir: enterable(t), Background: &labtest.Background{}}
	if err := os.Chmod(j.dir, 0o777); err != nil {
		t.Fatal(err)
	}
	j.Cmd = w.Isthmus("run", "--hosts", hosts, "--replicas", "2", "--hang", failoverHang.String(), "--installed", "--verbose",
		"--env", ringKey+"="+j.dir+":"+how, enterableSelf(t))
	j.Cmd.Stdout, j.Cmd.Stderr = j, j
	if err := j.Cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Cmd.Process.Kill() })
	return j
}

// failoverHang is how long a host may be silent, and heardOf after how long all hosts of a job have heard of each other:
// several periods of gossip.
const (
	failoverHang = time.Second
	heardOf      = 5 * time.Second
)

// when returns what is in a file of ring's, in nanoseconds, or 0 while there is none.
func (j *ringJob) when(what string, rank int) int64 {
	text, err := os.ReadFile(filepath.Join(j.dir, fmt.Sprintf("%s.%d", what, rank)))
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(string(text), 10, 64)
	return n
}

// succeeds waits for the end of the job.
func (j *ringJob) succeeds() {
	j.w.T.Helper()
	if status := j.ExitStatus(j.w.World); status != 0 || strings.Count(j.Output(), "[0] round it went\n") != 1 {
		j.w.T.Errorf("status %d:\n%s", status, j.Output())
	}
	j.w.AwaitNoJobs()
}

// report prints percentiles of what was measured.
func report(what string, took []time.Duration, target time.Duration) {
	slices.Sort(took)
	at := func(share float64) float64 { return took[int(share*float64(len(took)-1)+0.5)].Seconds() }
	line, _ := json.Marshal(map[string]any{
		"death": what, "samples": len(took), "p50_s": at(0.5), "p99_s": at(0.99), "max_s": at(1), "target_s": target.Seconds(),
	})
	fmt.Printf("failover: %s\n", line)
}

// A process that waits for a message of one that is killed gets it from another replica. It is measured how long
// that takes from the death on.
func TestKilledProcessIsReplaced(t *testing.T) {
	t.Parallel() // most of it is waiting
	labtest.NeedLab(t)
	w := killWorld(t)
	w.AwaitHosts(6)
	var took []time.Duration
	for range failoverJobs(t) {
		j := w.startRing(t, "kill", killHosts)
		j.succeeds()
		for rank := range 3 {
			died, heard := j.when("died", rank), j.when("heard", rank+1)
			if died == 0 || heard < died {
				t.Errorf("rank %d died at %d, and the next one heard at %d:\n%s", rank, died, heard, j.Output())
			}
			took = append(took, time.Duration(heard-died))
		}
	}
	report("process", took, 300*time.Millisecond)
}

func failoverJobs(t *testing.T) int {
	n := 1
	if text := os.Getenv(failoverKey); text != "" {
		if _, err := fmt.Sscan(text, &n); err != nil {
			t.Fatalf("%s: %v", failoverKey, err)
		}
	}
	return n
}

// signalAll sends a signal to all processes of a host but one.
func (w *world) signalAll(host string, sig syscall.Signal, but int) {
	for _, pid := range w.processesAt(host) {
		if pid != but {
			syscall.Kill(pid, sig)
		}
	}
}

// stat returns the fields of a process in proc(5)'s stat, from the third on; none if there is no such process.
func stat(pid int) []string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
}

// ended returns the signal that ended a process whose parent has not asked yet how it ended, and whether it has ended.
func ended(pid int) (sig syscall.Signal, over bool) {
	fields := stat(pid)
	if len(fields) == 0 {
		return 0, true
	}
	status, _ := strconv.Atoi(fields[52-3])
	return syscall.WaitStatus(status).Signal(), fields[0] == "Z"
}

// A host falls silent while a process waits for one that runs there: the job goes on without it. When
// the host comes to life, its process ends by a signal, also while what would end it on behalf of the launcher sleeps.
func TestFrozenHost(t *testing.T) {
	t.Parallel() // most of it is waiting
	labtest.NeedLab(t)
	w := killWorld(t)
	w.AwaitHosts(6)
	const host = "closed/n1"
	var took []time.Duration
	for range failoverJobs(t) {
		j := w.startRing(t, "freeze", "n1@closed:1,n2@closed:1,n1@east:1,n2@east:1")
		// A host that is lost before it has answered the launcher keeps the job from starting.
		w.Until("the job to have started", func() bool { return strings.Contains(j.Output(), "isthmus: 4 processes run\n") }, j.Output)
		w.Until("replica 0 of rank 0 to stop", func() bool { return j.when("died", 0) != 0 }, j.Output)
		victim := 0
		for _, pid := range w.processesAt(host) {
			if j.when("pid", pid) != 0 {
				victim = pid
			}
		}
		start := time.Now()
		w.signalAll(host, syscall.SIGSTOP, 0)
		w.Until("rank 1 to go on", func() bool { return j.when("heard", 1) != 0 }, j.Output)
		took = append(took, time.Duration(j.when("heard", 1)-start.UnixNano()))

		parent, _ := strconv.Atoi(stat(victim)[4-3])
		w.signalAll(host, syscall.SIGCONT, parent)
		var by syscall.Signal
		w.Until("the process to end", func() (over bool) { by, over = ended(victim); return over }, func() string {
			words, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", parent))
			return fmt.Sprintf("%q, of %q: %s", stat(victim), words, j.Output())
		})
		if by != syscall.SIGKILL {
			t.Errorf("the process was ended by signal %d", by)
		}
		w.signalAll(host, syscall.SIGCONT, 0)
		if err := os.WriteFile(filepath.Join(j.dir, "go"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		j.succeeds()
		w.AwaitHosts(6)
		w.nothingOf(host)
	}
	bound := gossip.Config{Hang: failoverHang}.Bound(4)
	report("host", took, bound+500*time.Millisecond)
}
