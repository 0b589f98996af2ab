//go:build system

package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-grid/isthmus/link"
	"github.com/isthmus-grid/isthmus/overlay"
)

// echoVar has this very binary be a process that sends back what it receives.
const echoVar = "ISTHMUS_ENGINE_TEST_ECHO"

func TestMain(m *testing.M) {
	if os.Getenv(echoVar) != "" {
		if err := echo(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// joined returns an engine of two that reaches the other through f.
func joined(rank int, f *os.File) (*Engine, error) {
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	e := New(Config{Rank: rank, Size: 2, Unexpected: 1 << 20, SharedMemory: true})
	e.Attach(&link.Link{Conn: bare(c.(*net.UnixConn)), Peer: overlay.ProcessName{Rank: uint32(1 - rank)}})
	return e, nil
}

// echo sends every message back, until the other process is gone. Those with tag 1
// it leaves to themselves for a while first.
func echo() error {
	e, err := joined(1, os.NewFile(3, "link"))
	if err != nil {
		return err
	}
	defer e.Close()
	buf := make([]byte, 4<<20)
	for {
		var r, s Request
		e.Irecv(&r, everyone{}, 0, 0, AnyTag, buf)
		got, err := r.Wait(context.Background())
		if err != nil {
			return nil
		}
		if got.Tag == 1 {
			time.Sleep(3 * tick) // it computes
		}
		e.Isend(&s, everyone{}, 0, 0, got.Tag, buf[:got.Bytes], Standard, true)
		if _, err := s.Wait(context.Background()); err != nil {
			return nil
		}
	}
}

// companion starts a process that echoes, and returns an engine that shares memory with it.
func companion(t *testing.T) (*Engine, *exec.Cmd) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "theirs")
	defer theirs.Close()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), echoVar+"=1")
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	e, err := joined(0, os.NewFile(uintptr(fds[0]), "mine"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	for end := time.Now().Add(30 * time.Second); !e.Links()[0].Shared; time.Sleep(tick) {
		if l := e.Links()[0]; l.Reason != nil || time.Now().After(end) {
			t.Fatalf("no shared memory: %v", l.Reason)
		}
	}
	return e, cmd
}

// call sends b and receives it back.
func call(ctx context.Context, e *Engine, tag int, b, back []byte) error {
	var s, r Request
	e.Irecv(&r, everyone{}, 0, 1, tag, back)
	e.Isend(&s, everyone{}, 0, 1, tag, b, Standard, true)
	_, err := s.Wait(ctx)
	got, err2 := r.Wait(ctx)
	if err = errors.Join(err, err2); err == nil && got.Bytes != uint64(len(b)) {
		err = fmt.Errorf("%d bytes came back of %d", got.Bytes, len(b))
	}
	return err
}

// mapped returns how many segments this process has mapped.
func mapped(t *testing.T) int {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(maps), "memfd:isthmus")
}

// Between two processes messages of all sizes come as they were sent, also to one that
// is busy for a while.
func TestTwoProcesses(t *testing.T) {
	before := mapped(t)
	e, _ := companion(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for i, n := range []int{0, 1, 32, 33, 16 << 10, 32 << 10, 32<<10 + 1, 64 << 10, 100 << 10, 1<<20 + 7, 4 << 20} {
		for tag := range 2 {
			for k := range sweep(8, 20) {
				b, back := numbered(make([]byte, n), i+k), make([]byte, n)
				if err := call(ctx, e, tag, b, back); err != nil {
					t.Fatalf("%d bytes: %v", n, err)
				}
				if string(b) != string(back) {
					t.Fatalf("%d bytes came back damaged", n)
				}
			}
		}
	}
	e.Close()
	if n := mapped(t); n != before {
		t.Errorf("%d segments are mapped, %d were before", n, before)
	}
}

// When a process is killed, whatever it did, the other's calls fail soon and nothing
// of the two is left.
func TestProcessKilled(t *testing.T) {
	before := mapped(t)
	for round := range sweep(10, 20) {
		random := rand.New(rand.NewPCG(7, uint64(round)))
		e, cmd := companion(t)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		size, tag, left := 1<<random.IntN(22), random.IntN(2), random.IntN(40)
		b, back := make([]byte, size), make([]byte, size)
		var err error
		for i := 0; err == nil; i++ {
			if i == left {
				go func() {
					time.Sleep(time.Duration(random.IntN(3000)) * time.Microsecond)
					cmd.Process.Kill()
				}()
			}
			err = call(ctx, e, tag, b, back)
		}
		if !errors.Is(err, ErrProcFailed) {
			t.Errorf("round %d, %d bytes, tag %d: %v", round, size, tag, err)
		}
		cancel()
		e.Close()
		if n := mapped(t); n != before {
			t.Fatalf("%d segments are mapped, %d were before", n, before)
		}
	}
}
