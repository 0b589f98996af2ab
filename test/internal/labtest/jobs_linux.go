package labtest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// LaunchConfig returns a grid in which jobs can be launched: each node has the given offer.
func LaunchConfig(offer map[string]any) grid.Config {
	return grid.Config{Settings: map[string]map[string]any{"helper": {"offer": offer}}}
}

// Isthmus returns an isthmus command that uses the helper of open/n1.
func (w *World) Isthmus(words ...string) *exec.Cmd {
	cmd := exec.CommandContext(w.Ctx, Program(w.T, ""), words...)
	cmd.Env = append(os.Environ(), "ISTHMUS_HELPER="+w.Socket("open/n1"))
	return cmd
}

// AwaitHosts waits until all n hosts can be booked.
func (w *World) AwaitHosts(n int) {
	w.T.Helper()
	var out []byte
	var err error
	w.Until(fmt.Sprintf("%d hosts", n), func() bool {
		out, err = Output(w.Isthmus("hosts", "--json"))
		return err == nil && strings.Count(string(out), `"state":"up"`) == n
	}, func() string { return fmt.Sprintf("%s (%v)", out, err) })
}

// AwaitNoJobs waits until no host has a job.
func (w *World) AwaitNoJobs() {
	w.T.Helper()
	var out []byte
	var err error
	w.Until("no job to be left", func() bool {
		out, err = Output(w.Isthmus("ps", "--json"))
		return err == nil && len(out) == 0
	}, func() string { return fmt.Sprintf("%s (%v)", out, err) })
}

// RunExample runs `isthmus-lab example` with these words as a job: by `isthmus run` on each of the
// nodes, with the given number of ranks on each. It returns the standard output.
func (w *World) RunExample(t *testing.T, nodes []string, ranks int, words ...string) string {
	t.Helper()
	return w.RunJobOf(t, nodes, ranks, append([]string{Program(t, "-lab"), "example"}, words...)...)
}

// RunJobOf is RunExample for any program.
func (w *World) RunJobOf(t *testing.T, nodes []string, ranks int, command ...string) string {
	t.Helper()
	key := filepath.Join(t.TempDir(), "job.key")
	if err := os.WriteFile(key, []byte(NewKey(t, "job").String()), 0o600); err != nil {
		t.Fatal(err)
	}
	program := Program(t, "")
	outputs, complaints := make([]bytes.Buffer, len(nodes)), make([]bytes.Buffer, len(nodes))
	var running sync.WaitGroup
	for i, node := range nodes {
		argv := append([]string{"run", "--key", key, "--size", fmt.Sprint(len(nodes) * ranks),
			"--ranks", fmt.Sprintf("%d-%d", i*ranks, (i+1)*ranks-1), "--helper", w.Socket(node), "--label", node, "--"}, command...)
		cmd := w.Lab.Host(node).Command(w.Ctx, program, argv...)
		cmd.Stdout, cmd.Stderr = &outputs[i], &complaints[i]
		t.Logf("on %s: isthmus %s", node, strings.Join(argv, " "))
		running.Go(func() {
			if err := cmd.Run(); err != nil {
				t.Errorf("the ranks on %s: %v: %s", node, err, complaints[i].Bytes())
			}
		})
	}
	running.Wait()
	var all strings.Builder
	for i := range outputs {
		all.Write(outputs[i].Bytes())
	}
	return all.String()
}

// KeyFile writes the key of a new job.
func KeyFile(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "job.key")
	if err := os.WriteFile(name, []byte(NewKey(t, "run").String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// Solo is a job of one process.
type Solo struct {
	*lab.Cmd
	Out bytes.Buffer // its output, complete once it was waited for
}

// StartSolo starts the rendezvous program as a job of one process, which is the process itself.
func (w *World) StartSolo(node string, words ...string) *Solo {
	w.T.Helper()
	s := &Solo{Cmd: w.Lab.Host(node).Command(w.Ctx, Program(w.T, "-lab"), append([]string{"example", "rendezvous"}, words...)...)}
	s.Stdout, s.Stderr = &s.Out, &s.Out
	s.Env = append(os.Environ(), mpilib.EnvHelper+"="+w.Socket(node), jobkey.EnvKey+"="+NewKey(w.T, "solo").String())
	if err := s.Start(); err != nil {
		w.T.Fatal(err)
	}
	w.T.Cleanup(func() {
		if s.ProcessState == nil { // else it was waited for
			s.Process.Kill()
			s.Wait()
		}
	})
	return s
}

// AwaitNames waits until the broker knows n names.
func (w *World) AwaitNames(n int) {
	w.T.Helper()
	got := -1.0
	w.Until(fmt.Sprintf("%d names to be published", n), func() bool {
		st, err := w.Status(w.Ctx, "broker")
		if err != nil {
			return false // it is starting
		}
		got, _ = st["names"].(float64)
		return got == float64(n)
	}, func() string { return fmt.Sprint(got) })
}
