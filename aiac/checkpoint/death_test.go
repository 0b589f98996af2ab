package checkpoint

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/internal/testkit"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// partEnv makes the test binary a rank of TestFetchSurvivesDeaths.
const partEnv = "ISTHMUS_TEST_PART"

// ranks are those of the processes of TestFetchSurvivesDeaths: six at two sites.
const ranks = 6

func TestMain(m *testing.M) {
	if os.Getenv(partEnv) == "" {
		os.Exit(m.Run())
	}
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	w, err := mpilib.Init(ctx, twoSites)
	if err == nil {
		err = runPart(ctx, w.Comm())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0) // without a goodbye: others may be dead
}

// runPart is one process: rank 0 saves; its first holder dies, then the other one; and rank 5 fetches after each death.
func runPart(ctx context.Context, c *mpilib.Comm) error {
	if err := mpilib.Barrier(ctx, c); err != nil {
		return err
	}
	return serve(ctx, c, often, func(x *Exchange) error {
		var iteration uint64
		holders := []int{0, 0}
		if c.Rank() == 0 {
			if err := saveUntilKept(ctx, x, &iteration, 4); err != nil {
				return err
			}
			holders = x.Holders()
		}
		if err := mpilib.Bcast(ctx, c, holders, 0); err != nil {
			return err
		}
		if err := loseRank(ctx, c, holders[0], nil); err != nil {
			return err
		}
		if err := fetchFromSecond(ctx, x); err != nil {
			return err
		}
		if err := loseRank(ctx, c, holders[1], holders[:1]); err != nil {
			return err
		}
		if err := fetchFromNone(ctx, x, holders); err != nil {
			return err
		}
		return awaitOthers()
	})
}

// loseRank ends the victim once every other living rank has come here, so that its death breaks nothing that they do before;
// at the others it returns when they know of the death.
func loseRank(ctx context.Context, c *mpilib.Comm, victim int, dead []int) error {
	const readyTag, neverTag = 8, 9
	if c.Rank() != victim {
		if err := mpilib.Send(ctx, c, []byte{0}, victim, readyTag); err != nil {
			return err
		}
		if _, err := c.Probe(ctx, victim, neverTag); !errors.Is(err, mpilib.ErrProcFailed) {
			return fmt.Errorf("rank %d lives: %w", victim, err)
		}
		return nil
	}
	for r := range c.Size() {
		if r == victim || slices.Contains(dead, r) {
			continue
		}
		if _, err := mpilib.Recv(ctx, c, make([]byte, 1), r, readyTag); err != nil {
			return err
		}
	}
	os.Exit(0)
	return nil
}

// awaitOthers says that this process has done its part and serves until the test, which has heard the same of all the others,
// closes its standard input: a process that ends earlier is a death that others see.
func awaitOthers() error {
	if _, err := fmt.Println("done"); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

func fetchFromSecond(ctx context.Context, x *Exchange) error {
	s, err := x.Fetch(ctx, 0)
	if err != nil || s.Task != 0 || !bytes.Equal(s.Data, stateOf(0, s.Iteration)) {
		return fmt.Errorf("rank %d gets iteration %d, %d bytes, of the second holder: %w", x.Task(), s.Iteration, len(s.Data), err)
	}
	return nil
}

func fetchFromNone(ctx context.Context, x *Exchange, holders []int) error {
	s, err := x.Fetch(ctx, 0)
	for _, h := range holders {
		if want := fmt.Sprintf("holder %d (s%d/n%d): lost", h, h%2, h); !errors.Is(err, ErrNoState) || !strings.Contains(err.Error(), want) {
			return fmt.Errorf("without holders: iteration %d, error %v; want %q", s.Iteration, err, want)
		}
	}
	return nil
}

// Both holders of a task die, one after the other, as processes do. After the first death every rank gets what the second one
// has; after the second all say what became of both.
func TestFetchSurvivesDeaths(t *testing.T) {
	key, err := jobkey.New("test")
	if err != nil {
		t.Fatal(err)
	}
	dir := testkit.ShortDir(t)
	var running, working sync.WaitGroup
	var inputs []io.Closer
	for rank := range ranks {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), partEnv+"=1", mpilib.EnvRank+"="+strconv.Itoa(rank), mpilib.EnvSize+"="+strconv.Itoa(ranks),
			mpilib.EnvJobKey+"="+key.String(), mpilib.EnvDir+"="+dir)
		input, stdinErr := cmd.StdinPipe()
		output, stdoutErr := cmd.StdoutPipe()
		var failure bytes.Buffer
		cmd.Stderr = &failure
		if err := errors.Join(stdinErr, stdoutErr, cmd.Start()); err != nil {
			t.Fatal(err)
		}
		inputs = append(inputs, input)
		working.Add(1)
		running.Go(func() {
			bufio.NewReader(output).ReadString('\n') // "done", or the end of a process that dies
			working.Done()
			if err := cmd.Wait(); err != nil {
				t.Errorf("rank %d: %v\n%s", rank, err, failure.String())
			}
		})
	}
	working.Wait()
	for _, input := range inputs {
		input.Close()
	}
	running.Wait()
}
