//go:build system

package abitest

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/mpilib"
)

// killsKey names a variable that says how often the tests here kill a rank.
const killsKey = "ISTHMUS_TEST_C_KILLS"

// detected bounds the time from a process's death until all others have ended, many times what it takes on a machine that does nothing else.
const detected = time.Minute

// A rank is killed at some moment while all exchange messages. The others end with their own exit status, and nothing is left. Shared memory has
// no name, so the processes' end is its end.
func TestKills(t *testing.T)        { kills(t, 20, standardProgram(t, "traffic.c")) }
func TestMPICHKills(t *testing.T)   { kills(t, 5, mpichProgram(t, "traffic.c")) }
func TestOpenMPIKills(t *testing.T) { kills(t, 5, openMPIProgram(t, "traffic.c")) }

func kills(t *testing.T, repeats int, program string) {
	t.Helper()
	if n, err := strconv.Atoi(os.Getenv(killsKey)); err == nil {
		repeats = n
	}
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	var slowest time.Duration
	for i := range repeats {
		j := killing{t: t, program: program, ranks: 2 + random.IntN(4), shared: i%2 == 0}
		j.victim, j.after = random.IntN(j.ranks), time.Duration(random.IntN(100_000))*time.Microsecond
		took, err := j.run()
		if err != nil {
			t.Fatalf("seed %d, kill %d of %d: %d ranks, rank %d killed after %v, shared memory %v: %v", seed, i, repeats, j.ranks, j.victim, j.after, j.shared, err)
		}
		slowest = max(slowest, took)
	}
	t.Logf("%d kills, the others ended after %v at most", repeats, slowest)
}

// killing is a job of which a rank is killed.
type killing struct {
	t             *testing.T
	program       string
	ranks, victim int
	after         time.Duration // of the moment when all have joined
	shared        bool
}

// run returns how long after the kill the last rank has ended.
func (j killing) run() (time.Duration, error) {
	sockets, err := os.MkdirTemp("", "isthmus")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(sockets)
	ctx, cancel := context.WithTimeout(j.t.Context(), 2*detected)
	defer cancel()
	var joined, ended sync.WaitGroup
	ranks, outputs, errs := make([]*exec.Cmd, j.ranks), make([]strings.Builder, j.ranks), make([]error, j.ranks)
	for rank := range ranks {
		cmd := exec.CommandContext(ctx, j.program)
		cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+filepath.Join(libraries(j.t), "lib"),
			fmt.Sprintf("%s=%d", mpilib.EnvRank, rank), fmt.Sprintf("%s=%d", mpilib.EnvSize, j.ranks),
			mpilib.EnvJobKey+"="+jobKey, mpilib.EnvDir+"="+sockets)
		if !j.shared {
			cmd.Env = append(cmd.Env, mpilib.EnvShared+"=off")
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			return 0, err
		}
		cmd.Stderr = &outputs[rank]
		if err := cmd.Start(); err != nil {
			return 0, err
		}
		ranks[rank] = cmd
		joined.Add(1)
		ended.Go(func() {
			bufio.NewReader(out).ReadString('\n')
			joined.Done()
			errs[rank] = cmd.Wait()
		})
	}
	joined.Wait()
	select { // the moment of the kill, which nothing else tells
	case <-time.After(j.after):
	case <-ctx.Done():
	}
	killed := time.Now()
	ranks[j.victim].Process.Kill()
	ended.Wait()
	took := time.Since(killed)
	for rank, err := range errs {
		want := "exit status 5"
		if rank == j.victim {
			want = "signal: killed"
		}
		if fmt.Sprint(err) != want {
			return 0, fmt.Errorf("rank %d: %v, want %s: %s", rank, err, want, &outputs[rank])
		}
	}
	if took > detected {
		return 0, fmt.Errorf("the others ended after %v", took)
	}
	return took, nil
}
