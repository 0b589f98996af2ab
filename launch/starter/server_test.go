package starter

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// A live process is detected even where /proc hides it: otherwise its account would be given to
// another job, and swept.
func TestHiddenProcesses(t *testing.T) {
	over := exec.Command("true")
	if err := over.Run(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		proc  string
		pid   int
		lives bool
	}{
		{"/proc", os.Getpid(), true}, {"/nowhere", os.Getpid(), true}, {"/nowhere", 1, true},
		{"/proc", over.Process.Pid, false}, {"/nowhere", over.Process.Pid, false}, {"/nowhere", 0, false},
	} {
		if got := begunIn(c.proc, c.pid); (got != 0) != c.lives {
			t.Errorf("process %d by %s began at %d", c.pid, c.proc, got)
		}
	}
}

// Whatever is in the state file, a starter starts.
func TestDamagedState(t *testing.T) {
	for text, agents := range map[string]int{
		"": 0, "null": 0, "[]": 0, "{": 0, `{"Agents": null}`: 0, `{"Agents": {"x": null}}`: 0, `{"Agents": {"x": 7}}`: 0,
		`{"Used": [1, -1]}`: 0, `{"Agents": {"x": {"UID": 20001, "PID": -1}}, "Used": [0, 4294967295], "Next": 4294967295}`: 1,
	} {
		file := filepath.Join(t.TempDir(), "agents.json")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if s := New(Options{State: file, Log: slog.New(slog.DiscardHandler)}); len(s.agents) != agents {
			t.Errorf("%s: %d agents, want %d", text, len(s.agents), agents)
		}
	}
}

func FuzzState(f *testing.F) {
	f.Add([]byte(`{"Agents": {"x": {"UID": 20001, "PID": 12}}, "Used": [20001], "Next": 1}`))
	f.Add([]byte(`{"Agents": {"x": null}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		k, err := readKept(text)
		for name, a := range k.Agents {
			if err == nil && a == nil {
				t.Errorf("agent %q is nothing", name)
			}
		}
	})
}
