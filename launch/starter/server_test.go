package starter

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
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

// While the files of an ended job are removed, which may take long, the job has ended, others are served, and nobody
// gets its account; the next one's start needs no further sweep, nor does that of an account that no job has had.
func TestFilesAreRemovedAside(t *testing.T) {
	s := New(Options{Range: Range{20_000, 20_000}, State: filepath.Join(t.TempDir(), "agents.json"), Log: slog.New(slog.DiscardHandler)})
	sweeps, removing, goOn := 0, make(chan struct{}), make(chan struct{})
	s.sweep = func(*syscall.Credential) error { sweeps++; return nil }
	s.remove = func(*syscall.Credential, string) error { close(removing); <-goOn; return nil }
	if !s.isClean(20_000) {
		t.Error("an account that no job has had is to be swept")
	}
	const who = "alice@a/n1"
	uid, err := s.accounts.assign(who)
	if err != nil {
		t.Fatal(err)
	}
	s.accounts.begins(uid, who)
	s.clean[uid] = false
	a := &started{UID: uid, Identity: who, ended: make(chan struct{})}
	s.agents["x"] = a
	done := make(chan struct{})
	go func() {
		s.processEnded("x", a)
		close(done)
	}()
	<-removing
	<-a.ended
	s.mu.Lock()
	s.noteStrangers()
	if next, err := s.accounts.assign(who); err == nil {
		t.Errorf("%d, whose files are being removed, is given out", next)
	}
	s.mu.Unlock()
	close(goOn)
	<-done
	if _, lives := s.accounts.live[uid]; lives || !s.isClean(uid) || sweeps != 1 {
		t.Errorf("the account is in use: %v, clean: %v, after %d sweeps", lives, s.isClean(uid), sweeps)
	}
	if unknown := New(Options{Range: Range{20_000, 20_000}, Log: slog.New(slog.DiscardHandler)}); unknown.isClean(20_000) {
		t.Error("without a state file, nothing is known of an account")
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
