package test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/grid"
	"github.com/isthmus-grid/isthmus/internal/jobkey"
	"github.com/isthmus-grid/isthmus/internal/lab"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// launching is a grid in which jobs can be launched: each node offers as much as says.
func launching(offer map[string]any) grid.Config {
	return grid.Config{Settings: map[string]map[string]any{"helper": {"offer": offer}}}
}

// isthmus runs words of isthmus by the helper of open/n1.
func (w *world) isthmus(words ...string) *exec.Cmd {
	cmd := exec.CommandContext(w.ctx, isthmus(w.t, ""), words...)
	cmd.Env = append(os.Environ(), "ISTHMUS_HELPER="+w.Socket("open/n1"))
	return cmd
}

// listed waits until all n hosts can be booked.
func (w *world) listed(n int) {
	w.t.Helper()
	var out []byte
	var err error
	w.until(fmt.Sprintf("%d hosts", n), func() bool {
		out, err = w.isthmus("hosts", "--json").CombinedOutput()
		return err == nil && strings.Count(string(out), `"state":"up"`) == n
	}, func() string { return fmt.Sprintf("%s (%v)", out, err) })
}

// quiet waits until no host has a job any more.
func (w *world) quiet() {
	w.t.Helper()
	var out []byte
	var err error
	w.until("no job to be left", func() bool {
		out, err = w.isthmus("ps", "--json").CombinedOutput()
		return err == nil && len(out) == 0
	}, func() string { return fmt.Sprintf("%s (%v)", out, err) })
}

// job runs words of isthmus as a job by `isthmus run` on each of the nodes,
// with so many ranks on each, and returns what it wrote.
func (w *world) job(t *testing.T, nodes []string, ranks int, words ...string) string {
	t.Helper()
	return w.jobOf(t, nodes, ranks, append([]string{isthmus(t, "")}, words...)...)
}

// jobOf is job for any program.
func (w *world) jobOf(t *testing.T, nodes []string, ranks int, command ...string) string {
	t.Helper()
	key := filepath.Join(t.TempDir(), "job.key")
	if err := os.WriteFile(key, []byte(newKey(t, "job").String()), 0o600); err != nil {
		t.Fatal(err)
	}
	program := isthmus(t, "")
	outputs := make([]bytes.Buffer, len(nodes))
	var running sync.WaitGroup
	for i, node := range nodes {
		argv := append([]string{"run", "--key", key, "--size", fmt.Sprint(len(nodes) * ranks),
			"--ranks", fmt.Sprintf("%d-%d", i*ranks, (i+1)*ranks-1), "--helper", w.Socket(node), "--label", node, "--"}, command...)
		cmd := w.Lab.Host(node).Command(w.ctx, program, argv...)
		cmd.Stdout, cmd.Stderr = &outputs[i], &outputs[i]
		t.Logf("on %s: isthmus %s", node, strings.Join(argv, " "))
		running.Go(func() {
			if err := cmd.Run(); err != nil {
				t.Errorf("the ranks on %s: %v", node, err)
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

func keyFile(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "job.key")
	if err := os.WriteFile(name, []byte(newKey(t, "run").String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// solo is a job of one process.
type solo struct {
	*lab.Cmd
	out bytes.Buffer
}

// alone starts the rendezvous as a job of one process, that it is itself.
func (w *world) alone(node string, words ...string) *solo {
	w.t.Helper()
	s := &solo{Cmd: w.Lab.Host(node).Command(w.ctx, isthmus(w.t, ""), append([]string{"example", "rendezvous"}, words...)...)}
	s.Stdout, s.Stderr = &s.out, &s.out
	s.Env = append(os.Environ(), mpilib.EnvHelper+"="+w.Socket(node), jobkey.EnvKey+"="+newKey(w.t, "solo").String())
	if err := s.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if s.ProcessState == nil { // else it was waited for
			s.Process.Kill()
			s.Wait()
		}
	})
	return s
}

// published waits until the broker knows so many names.
func (w *world) published(n int) {
	w.t.Helper()
	got := -1.0
	w.until(fmt.Sprintf("%d names to be published", n), func() bool {
		st, err := w.Status(w.ctx, "broker")
		if err != nil {
			return false // it is starting
		}
		got, _ = st["names"].(float64)
		return got == float64(n)
	}, func() string { return fmt.Sprint(got) })
}
