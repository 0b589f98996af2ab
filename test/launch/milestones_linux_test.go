//go:build system

package launch

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/mpilib"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// stepsKey names, in the environment, the folder of a job whose processes run steps.
const stepsKey = "ISTHMUS_TEST_STEPS"

// lastStep is how many steps there are.
const lastStep = 6

// steps is a process of a job that iterates, with a milestone in each iteration. It takes a step, and prints a sum, when the folder has a
// file of the step's number; it says in the folder who it is, and when it has come to its first step.
func steps() error {
	ctx, cancel := context.WithTimeout(context.Background(), labtest.Patience)
	defer cancel()
	w, err := mpilib.Init(ctx)
	if err != nil {
		return err
	}
	dir, c := os.Getenv(stepsKey), w.Comm()
	write := func(name string) error {
		file := filepath.Join(dir, name)
		return errors.Join(os.WriteFile(file+".new", fmt.Append(nil, os.Getpid()), 0o644), os.Rename(file+".new", file))
	}
	number := os.Getenv(mpilib.EnvProcess)
	if number == "" {
		number = fmt.Sprint(c.Rank() + w.Replica()*c.Size())
	}
	fmt.Printf("rank %d begins\n", c.Rank())
	if err := write("pid." + number); err != nil {
		return err
	}
	step, sum := uint64(0), uint64(0)
	save := func() ([]byte, error) {
		return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, step), sum), nil
	}
	load := func(b []byte) error {
		step, sum = binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])
		return nil
	}
	for first := true; step < lastStep; first = false {
		if err := w.Milestone(ctx, save, load); err != nil {
			return err
		}
		if first {
			if err := write("runs." + number); err != nil {
				return err
			}
		}
		isOpen, err := w.Decide(ctx, func() []byte {
			time.Sleep(time.Millisecond) // leaves the processor to the others
			_, err := os.Stat(filepath.Join(dir, fmt.Sprintf("step.%d", step)))
			return fmt.Append(nil, err == nil)
		})
		if err != nil {
			return err
		}
		next := []uint64{0}
		if c.Rank() == 0 && string(isOpen) == "true" {
			next[0] = 1
		}
		if err := mpilib.Bcast(ctx, c, next, 0); err != nil {
			return err
		}
		if next[0] == 0 {
			continue
		}
		all := []uint64{0}
		if err := mpilib.Allreduce(ctx, c, []uint64{step + uint64(c.Rank())}, all, mpilib.Sum[uint64]); err != nil {
			return err
		}
		sum += all[0]
		fmt.Printf("rank %d, step %d: %d\n", c.Rank(), step, sum)
		step++
	}
	return w.Finalize(ctx)
}

// A replica is killed and comes back; then the other one of its rank is killed, from which it has its state. The
// job ends well, and its output is that of one without kills, once.
func TestReplicaComesBack(t *testing.T) {
	t.Parallel() // most of it is waiting
	labtest.NeedLab(t)
	w := newWorld(t, labtest.SiteOpen+labtest.SiteClosed, threeSites())
	w.AwaitHosts(4)
	dir := enterable(t)
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	j := &replicaJob{t: t, w: w, dir: dir}
	awaitFile := func(name string) {
		t.Helper()
		w.Until(name, func() bool { _, err := os.Stat(filepath.Join(dir, name)); return err == nil }, j.Output)
	}
	take := func(first, last int) {
		t.Helper()
		for step := first; step <= last; step++ {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("step.%d", step)), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		for rank := range 2 {
			j.await(fmt.Sprintf("rank %d, step %d: ", rank, last))
		}
	}
	j.Background = w.Begin(w.Isthmus("run", "--hosts", "n1@closed:2,n2@open:2", "--replicas", "2", "--replace", "1", "--installed",
		"--env", stepsKey+"="+dir, enterableSelf(t)), " begins", 2)
	for number := range 4 {
		awaitFile(fmt.Sprintf("runs.%d", number))
	}
	take(0, 1)
	j.kill("1") // replica 0 of rank 1
	j.await(deathOf("1.0") + "signal: killed")
	awaitFile("runs.4")
	j.checkLive(nil)
	take(2, 3)
	j.kill("3")
	j.await(deathOf("1.1") + "signal: killed")
	take(4, lastStep-1)
	if status := j.ExitStatus(w.World); status != 0 {
		t.Errorf("status %d:\n%s", status, j.Output())
	}
	var want []string
	for rank := range 2 {
		want = append(want, fmt.Sprintf("[%d] rank %d begins\n", rank, rank))
		for step, sum := 0, 0; step < lastStep; step++ {
			sum += 2*step + 1
			want = append(want, fmt.Sprintf("[%d] rank %d, step %d: %d\n", rank, rank, step, sum))
		}
	}
	var got []string
	for line := range strings.Lines(j.Output()) {
		if strings.HasPrefix(line, "[") {
			got = append(got, line)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) || strings.Contains(j.Output(), "writes") {
		t.Errorf("got\n%swant\n%s", j.Output(), strings.Join(want, ""))
	}
	w.AwaitNoJobs()
}
