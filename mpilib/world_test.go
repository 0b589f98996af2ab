package mpilib

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/mpilib/internal/join"
)

const testKey = "demo:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"

// If a receiver falls behind, its peer uses rendezvous instead of sending eagerly. No message is
// lost, and a receive gets a message at once although many are before it.
func TestUnexpectedLimit(t *testing.T) {
	const n, size = 64, 10000
	TestWorld(t, 2, func(ctx context.Context, c *Comm) error {
		if c.Rank() == 0 {
			var sends []*Request
			for i := range n {
				sends = append(sends, Isend(c, bytes.Repeat([]byte{byte(i)}, size), 1, 1))
			}
			if err := Send(ctx, c, []byte{99}, 1, 2); err != nil {
				return err
			}
			_, err := Waitall(ctx, sends...)
			return err
		}
		buf := make([]byte, size)
		if _, err := Recv(ctx, c, buf, 0, 2); err != nil || buf[0] != 99 {
			return fmt.Errorf("%d, %w", buf[0], err)
		}
		for i := range n {
			if _, err := Recv(ctx, c, buf, 0, 1); err != nil || buf[size-1] != byte(i) {
				return fmt.Errorf("message %d: %d, %w", i, buf[size-1], err)
			}
		}
		return nil
	}, WithUnexpectedLimit(100<<10))
}

func TestFinalize(t *testing.T) {
	goroutines := runtime.NumGoroutine()
	w, err := Init(t.Context(), func(c *config) { c.lookup = func(string) (string, bool) { return "", false } })
	if err != nil {
		t.Fatal(err)
	}
	if w.Comm().Rank() != 0 || w.Comm().Size() != 1 {
		t.Errorf("rank %d of %d", w.Comm().Rank(), w.Comm().Size())
	}
	waits := Irecv(w.Comm(), []int{0}, 0, 1)
	for range 2 {
		if err := w.Finalize(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if _, err := waits.Wait(t.Context()); !errors.Is(err, ErrFinalized) {
		t.Errorf("a receive: %v", err)
	}
	if err := Send(t.Context(), w.Comm(), []int{1}, 0, 1); !errors.Is(err, ErrFinalized) {
		t.Errorf("a send: %v", err)
	}
	goneDownTo(t, goroutines)
}

// A message sent before Finalize arrives, although its receiver receives it long after the sender
// has ended.
func TestNothingIsLostAtTheEnd(t *testing.T) {
	gone := make(chan struct{})
	TestWorld(t, 2, func(ctx context.Context, c *Comm) error {
		if c.Rank() == 0 {
			for i := range 100 {
				if err := Send(ctx, c, []int{i}, 1, 0); err != nil {
					return err
				}
			}
			defer close(gone)
			return c.world.Finalize(ctx)
		}
		if _, err := taken(ctx, gone); err != nil {
			return err
		}
		for i := range 100 {
			got := []int{-1}
			if _, err := Recv(ctx, c, got, 0, 0); err != nil || got[0] != i {
				return fmt.Errorf("message %d: %d, %w", i, got[0], err)
			}
		}
		_, err := Recv(ctx, c, []int{0}, 0, 0)
		if !errors.Is(err, ErrFinalized) || !strings.Contains(err.Error(), "rank 0 of the world: world is finalized") {
			return fmt.Errorf("after the last: %v", err)
		}
		return nil
	})
}

// A rank that finalized before anybody had a link with it is not waited for.
func TestFinalizedBeforeTheFirstMessage(t *testing.T) {
	started, gone := make(chan struct{}), make(chan struct{})
	TestWorld(t, 2, func(ctx context.Context, c *Comm) error {
		if c.Rank() == 0 {
			defer close(gone)
			if _, err := taken(ctx, started); err != nil {
				return err
			}
			return c.world.Finalize(ctx)
		}
		close(started)
		if _, err := taken(ctx, gone); err != nil {
			return err
		}
		_, recvErr := Recv(ctx, c, []int{0}, 0, 0)
		for _, err := range []error{recvErr, Ssend(ctx, c, []int{1}, 0, 0), Send(ctx, c, make([]byte, 20<<20), 0, 0)} {
			if !errors.Is(err, ErrFinalized) || errors.Is(err, ErrProcFailed) || !strings.Contains(err.Error(), "rank 0 of the world: world is finalized") {
				return fmt.Errorf("with a rank that has left: %v", err)
			}
		}
		return nil
	}, WithConnectTimeout(testTimeout))
}

func TestReport(t *testing.T) {
	file := filepath.Join(t.TempDir(), "links.json")
	TestWorld(t, 2, func(ctx context.Context, c *Comm) error {
		if c.Rank() == 0 {
			return Send(ctx, c, make([]int64, 5), 1, 0)
		}
		_, err := Recv(ctx, c, make([]int64, 5), 0, 0)
		return err
	}, func(cfg *config) { cfg.lookup = func(name string) (string, bool) { return file, name == EnvReport } })
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]LinkInfo{}
	for dec := json.NewDecoder(bytes.NewReader(text)); dec.More(); {
		var l LinkInfo
		if err := dec.Decode(&l); err != nil {
			t.Fatal(err)
		}
		seen[l.Rank] = l
	}
	a, b := seen[0], seen[1]
	if a.Peer != 1 || b.Peer != 0 || a.MessagesSent != 1 || a.BytesSent != 40 || b.MessagesReceived != 1 || b.BytesReceived != 40 ||
		b.BytesSent != 0 || a.Technique != "local" || !a.Dialled || b.Dialled || a.RTTMS <= 0 || !strings.Contains(a.Reason, "no helper") {
		t.Errorf("%s", text)
	}
}

// Many links opened, used and closed leave nothing behind.
func TestLinksLeaveNothing(t *testing.T) {
	count := func() (goroutines, files int) {
		entries, _ := os.ReadDir("/proc/self/fd")
		return runtime.NumGoroutine(), len(entries)
	}
	goroutines, files := count()
	for range either(3, 22) {
		TestWorld(t, 10, func(ctx context.Context, c *Comm) error { // 45 links
			out, in := make([]int, 10), make([]int, 10)
			return Alltoall(ctx, c, out, in)
		})
	}
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if g, f := count(); g <= goroutines && f <= files {
			return
		}
	}
	g, f := count()
	t.Errorf("%d goroutines and %d descriptors before, %d and %d after", goroutines, files, g, f)
}

func TestInitFails(t *testing.T) {
	key, err := jobkey.Parse(testKey)
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "no-helper")
	synctest.Test(t, func(t *testing.T) { // which sees that nothing is left running
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := Init(ctx, func(c *config) { c.place = &join.Place{Rank: 0, Size: 2, Key: key, Helper: socket} })
		if err == nil || !strings.Contains(err.Error(), "mpilib: Init: rank 0 of 2: helper "+socket+" is not reachable: ") || !strings.Contains(err.Error(), "is isthmus-helper running?") {
			t.Errorf("%v", err)
		}
	})
}

// goneDownTo waits until there are no more goroutines than before: a goroutine that has reported
// its end to its owner may not have exited yet.
func goneDownTo(t *testing.T, before int) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if runtime.NumGoroutine() <= before {
			return
		}
	}
	t.Errorf("%d goroutines before, %d after", before, runtime.NumGoroutine())
}
