package trace

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// events reads a timeline as a viewer does: the closing bracket may be missing.
func events(t *testing.T, name string) (list []map[string]any) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	whole := strings.TrimSuffix(string(text), ",\n") + "]"
	if err := json.Unmarshal([]byte(whole), &list); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	return list
}

func TestEvents(t *testing.T) {
	dir := t.TempDir()
	w, err := Open(dir, 3, "rank 3")
	if err != nil {
		t.Fatal(err)
	}
	w.Add(Event{Phase: Complete, Name: "Send", Kind: "call", At: 1500 * time.Nanosecond, For: 2 * time.Microsecond, Thread: 1, Args: map[string]any{"bytes": 8}})
	w.Add(Event{Phase: FlowEnd, Name: "message", ID: "a", At: 5 * time.Microsecond})
	name := filepath.Join(dir, "rank-3.json")
	w.Flush()
	if n := len(events(t, name)); n != 0 {
		t.Errorf("%d events are written before the clock is known", n)
	}
	w.Align(time.Second)
	w.Flush()
	list := events(t, name) // as it is if the process dies now
	if len(list) != 4 {
		t.Fatalf("%v", list)
	}
	base := float64(w.Start().UnixMicro()) + 1e6
	if e := list[2]; e["ph"] != "X" || e["name"] != "Send" || e["ts"].(float64)-base != 1.5 || e["dur"] != 2.0 || e["pid"] != 3.0 || e["tid"] != 1.0 ||
		e["args"].(map[string]any)["bytes"] != 8.0 {
		t.Errorf("%v", e)
	}
	if e := list[3]; e["bp"] != "e" || e["id"] != "a" {
		t.Errorf("%v", e)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

// Processes may share a file.
func TestShared(t *testing.T) {
	name := filepath.Join(t.TempDir(), "all.json")
	var writers sync.WaitGroup
	const processes, each = 8, 2000
	for p := range processes {
		writers.Go(func() {
			w, err := Open(name, p, "one of them")
			if err != nil {
				t.Error(err)
				return
			}
			w.Align(0)
			for range each {
				w.Add(Event{Phase: Instant, Name: "moment", At: w.Now()})
			}
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	writers.Wait()
	if n := len(events(t, name)); n != processes*(each+2) {
		t.Errorf("%d events, want %d", n, processes*(each+2))
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(name), ".trace-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// The events held back are bounded, and so is the file.
func TestBounds(t *testing.T) {
	name := filepath.Join(t.TempDir(), "t.json")
	w, err := Open(name, 0, "rank 0")
	if err != nil {
		t.Fatal(err)
	}
	w.most = 10 << 10
	for range maxPending {
		w.Add(Event{Phase: Instant, Name: "moment"})
	}
	if w.held != nil {
		t.Errorf("%d events are held back", len(w.held))
	}
	err = w.Close()
	if err == nil || !strings.Contains(err.Error(), "events are missing") {
		t.Errorf("%v", err)
	}
	if info, err := os.Stat(name); err != nil || info.Size() > 10<<10+2 {
		t.Errorf("%v, %v", info.Size(), err)
	}
	events(t, name)
}

func TestNoSuchFolder(t *testing.T) {
	if _, err := Open(filepath.Join(t.TempDir(), "no", "t.json"), 0, ""); err == nil {
		t.Error("opened a file in a folder that is not there")
	}
}
