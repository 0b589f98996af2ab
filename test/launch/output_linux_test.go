//go:build system

package launch

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/isthmus-grid/isthmus/mpilib"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// tellKey marks, in the environment, a process as one of tell; outputKillsKey says how many processes of each program are
// killed, from a random seed; without it two are.
const (
	tellKey        = "ISTHMUS_TEST_TELL"
	outputKillsKey = "ISTHMUS_TEST_OUTPUT_KILLS"
)

// Of tell's programs.
const (
	tellRanks  = 4
	tellRounds = 40
)

// tell is a process of a job whose output depends on what one replica of rank 0 decides. The variable is a folder, a
// program and a death, with colons between them. In "drawn" rank 0 draws numbers and prints them, and the others print what it sends them. In
// "heard" it prints in which order it hears of the others, and they which place they had. The death is "0.1.17": this replica of the rank kills
// itself when it has printed and sent so often.
func tell() error {
	ctx, cancel := context.WithTimeout(context.Background(), labtest.Patience)
	defer cancel()
	w, err := mpilib.Init(ctx)
	if err != nil {
		return err
	}
	c, all := w.Comm(), strings.Split(os.Getenv(tellKey), ":")
	name := filepath.Join(all[0], fmt.Sprintf("pid.%d.%d", c.Rank(), w.Replica()))
	if err := errors.Join(os.WriteFile(name+".new", fmt.Append(nil, os.Getpid()), 0o644), os.Rename(name+".new", name)); err != nil {
		return err
	}
	t := teller{ctx: ctx, c: c, left: -1}
	if process, steps, _ := cutLast(all[2]); process == fmt.Sprintf("%d.%d", c.Rank(), w.Replica()) {
		t.left = steps
	}
	switch {
	case all[1] == "drawn":
		err = t.drawn(w)
	case c.Rank() == 0:
		err = t.hears()
	default:
		err = t.isHeard()
	}
	return errors.Join(err, w.Finalize(ctx))
}

// cutLast splits "0.1.17" before the last point.
func cutLast(death string) (process string, steps int, err error) {
	i := max(0, strings.LastIndexByte(death, '.'))
	steps, err = strconv.Atoi(death[min(i+1, len(death)):])
	return death[:i], steps, err
}

// teller is what tell's programs have in common.
type teller struct {
	ctx  context.Context
	c    *mpilib.Comm
	left int // steps until it kills itself; negative: it does not
}

func (t *teller) step() {
	if t.left--; t.left == 0 {
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

func (t *teller) print(format string, args ...any) {
	fmt.Printf(format+"\n", args...)
	t.step()
}

func (t *teller) send(number, to int) error {
	defer t.step()
	return mpilib.Send(t.ctx, t.c, []int{number}, to, 0)
}

func (t *teller) receive(from int) (number, source int, err error) {
	buf := []int{0}
	st, err := mpilib.Recv(t.ctx, t.c, buf, from, 0)
	return buf[0], st.Source, err
}

func (t *teller) drawn(w *mpilib.World) error {
	for round := range tellRounds {
		number := 0
		if t.c.Rank() > 0 {
			var err error
			if number, _, err = t.receive(0); err != nil {
				return err
			}
			t.print("round %d: %d", round, number)
			continue
		}
		rng, err := w.Rand(t.ctx)
		if err != nil {
			return err
		}
		number = rng.IntN(1000)
		t.print("round %d: %d", round, number)
		for to := 1; to < t.c.Size(); to++ {
			if err := t.send(number, to); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *teller) hears() error {
	for place := range (t.c.Size() - 1) * (tellRounds / 3) {
		number, source, err := t.receive(mpilib.AnySource)
		if err != nil {
			return err
		}
		t.print("place %d: number %d of rank %d", place, number, source)
		if err := t.send(place, source); err != nil {
			return err
		}
	}
	return nil
}

func (t *teller) isHeard() error {
	for number := range tellRounds / 3 {
		if err := t.send(number, 0); err != nil {
			return err
		}
		place, _, err := t.receive(0)
		if err != nil {
			return err
		}
		t.print("place %d: number %d of rank %d", place, number, t.c.Rank())
	}
	return nil
}

// linesOf returns the lines of each rank in an output.
func linesOf(output string) (all [tellRanks][]string, err error) {
	for line := range strings.Lines(output) {
		var rank int
		_, text, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "] ")
		if _, err := fmt.Sscanf(line, "[%d]", &rank); err != nil || !ok || rank < 0 || rank >= tellRanks {
			return all, fmt.Errorf("line %q: %v", line, err)
		}
		all[rank] = append(all[rank], text)
	}
	return all, nil
}

// judge returns what is wrong with the output of one of tell's programs: it must be one that the program can have without replicas.
func judge(program, output string) error {
	all, err := linesOf(output)
	if err != nil {
		return err
	}
	if program == "drawn" {
		for rank, lines := range all {
			if strings.Join(lines, "\n") != strings.Join(all[0], "\n") || len(lines) != tellRounds {
				return fmt.Errorf("rank %d has %d lines, of %d, and not those of rank 0", rank, len(lines), tellRounds)
			}
			for round, line := range lines {
				if !strings.HasPrefix(line, fmt.Sprintf("round %d: ", round)) {
					return fmt.Errorf("rank %d has %q for round %d", rank, line, round)
				}
			}
		}
		return nil
	}
	var next [tellRanks]int // number of each rank
	if want := (tellRanks - 1) * (tellRounds / 3); len(all[0]) != want {
		return fmt.Errorf("rank 0 has %d lines, want %d", len(all[0]), want)
	}
	for place, line := range all[0] {
		var at, number, rank int
		if _, err := fmt.Sscanf(line, "place %d: number %d of rank %d", &at, &number, &rank); err != nil || at != place || rank < 1 || rank >= tellRanks || number != next[rank] {
			return fmt.Errorf("rank 0 has %q for place %d: %v", line, place, err)
		}
		if next[rank]++; number >= len(all[rank]) || all[rank][number] != line {
			return fmt.Errorf("rank 0 has %q, and rank %d has %q", line, rank, all[rank])
		}
	}
	for rank := 1; rank < tellRanks; rank++ {
		if len(all[rank]) != next[rank] {
			return fmt.Errorf("rank %d has %d lines, and rank 0 has %d of it", rank, len(all[rank]), next[rank])
		}
	}
	return nil
}

func TestJudge(t *testing.T) {
	var drawn, heard [tellRanks]string
	for i := range tellRounds {
		for rank := range drawn {
			drawn[rank] += fmt.Sprintf("[%d] round %d: %d\n", rank, i, i*7)
		}
	}
	for i := range (tellRanks - 1) * (tellRounds / 3) {
		rank, line := 1+i%3, fmt.Sprintf("place %d: number %d of rank %d\n", i, i/3, 1+i%3)
		heard[0] += "[0] " + line
		heard[rank] += fmt.Sprintf("[%d] %s", rank, line)
	}
	for program, right := range map[string]string{"drawn": strings.Join(drawn[:], ""), "heard": strings.Join(heard[:], "")} {
		if err := judge(program, right); err != nil {
			t.Errorf("%s: %v", program, err)
		}
		lines := strings.SplitAfter(right, "\n")
		for i, line := range lines[:len(lines)-1] {
			rest := strings.Join(lines[i+1:], "")
			before := strings.Join(lines[:i], "")
			for _, wrong := range []string{before + rest, before + line + line + rest, before + strings.Replace(line, "\n", "9\n", 1) + rest} {
				if judge(program, wrong) == nil {
					t.Fatalf("%s: nothing is wrong with\n%s", program, wrong)
				}
			}
		}
	}
}

// outputKills returns how many processes of each program are to be killed, and the seed.
func outputKills(t *testing.T) (kills int, seed uint64) {
	kills, seed = 2, 1
	if text := os.Getenv(outputKillsKey); text != "" {
		seed = rand.Uint64()
		if _, err := fmt.Sscan(text, &kills); err != nil {
			t.Fatalf("%s: %v", outputKillsKey, err)
		}
	}
	if text := os.Getenv(killSeedKey); text != "" {
		if _, err := fmt.Sscan(text, &seed); err != nil {
			t.Fatalf("%s: %v", killSeedKey, err)
		}
	}
	return kills, seed
}

// tells runs one of tell's programs, with a kill, and returns what it wrote, and its status. Mostly a replica of rank 0 is killed; every
// second time it does that itself, when it has just printed or sent something.
func (r *killRun) tells(program string, rng *rand.Rand, calls int, flags ...string) (stdout, stderr string, status int) {
	r.t.Helper()
	ctx, stop := context.WithCancel(r.w.Ctx)
	defer stop()
	victim, death := kill{replica: rng.IntN(2), after: rng.IntN(calls)}, "."
	if rng.IntN(4) == 0 {
		victim.rank = rng.IntN(tellRanks)
	}
	victim.victim = fmt.Sprintf("%d.%d", victim.rank, victim.replica)
	over := make(chan struct{})
	if own := rng.IntN(2) == 0; own {
		death = fmt.Sprintf("%s.%d", victim.victim, 1+rng.IntN(tellRounds))
		close(over)
	} else {
		go func() { // ends with ctx
			defer close(over)
			r.strike(ctx, victim)
		}()
	}
	words := append([]string{"run", "--hosts", killHosts, "--replicas", "2", "--hang", "1s", "--installed", "--env", tellKey + "=" + r.dir + ":" + program + ":" + death}, flags...)
	stdout, stderr, status = labtest.Run(r.t, r.w.Isthmus(append(words, enterableSelf(r.t))...))
	stop()
	<-over
	return stdout, fmt.Sprintf("death %q, %v; it wrote:\n%s", death, victim, stderr), status
}

// tellCalls is up to how many reads and writes of a process it is killed after, at random: about as many as one makes.
const tellCalls = 600

// What a job prints is what it can print without replicas, whichever replica is killed at whatever moment, though it depends on random numbers
// and on the order of messages.
func TestOutputIsNotContradicted(t *testing.T) {
	t.Parallel() // most of it is waiting
	labtest.NeedLab(t)
	w := killWorld(t)
	w.AwaitHosts(6)
	kills, seed := outputKills(t)
	for _, program := range []string{"drawn", "heard"} {
		for i := range kills {
			w.kills(t, fmt.Sprintf("%s/%d/%d", program, seed, i), program, func(r *killRun) {
				stdout, stderr, status := r.tells(program, rand.New(rand.NewPCG(seed, uint64(i))), tellCalls)
				if err := judge(program, stdout); err != nil || status != 0 {
					r.t.Errorf("status %d: %v\n%s\n%s", status, err, stdout, stderr)
				}
				r.w.AwaitNoJobs()
			})
		}
	}
}

// A program of which is said that it sends the same whatever is decided, which is not so, fails, or prints what it can print without
// replicas.
func TestFalselySendDeterministic(t *testing.T) {
	t.Parallel() // most of it is waiting
	labtest.NeedLab(t)
	w := killWorld(t)
	w.AwaitHosts(6)
	kills, seed := outputKills(t)
	failed := 0
	for _, program := range []string{"drawn", "heard"} {
		for i := range kills {
			w.kills(t, fmt.Sprintf("%s/%d/%d", program, seed, i), program, func(r *killRun) {
				stdout, stderr, status := r.tells(program, rand.New(rand.NewPCG(seed, uint64(i))), tellCalls, "--send-deterministic")
				if status != 0 {
					failed++
					r.t.Logf("status %d: %s", status, stderr)
				} else if err := judge(program, stdout); err != nil {
					r.t.Errorf("status 0, and %v\n%s\n%s", err, stdout, stderr)
				}
				r.w.AwaitNoJobs()
			})
		}
	}
	t.Logf("%d of %d jobs failed", failed, 2*kills)
}
