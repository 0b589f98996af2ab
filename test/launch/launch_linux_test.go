//go:build system

package launch

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// ends runs a command, which must exit with that status and write the words to its standard error.
func (w *world) ends(status int, words string, cmd *exec.Cmd) string {
	w.T.Helper()
	stdout, stderr, got := labtest.Run(w.T, cmd)
	if got != status || !strings.Contains(stderr, words) {
		w.T.Errorf("%q: status %d, want %d\nstdout:\n%s\nstderr:\n%s\nwant in stderr: %s", cmd.Args[1:], got, status, stdout, stderr, words)
	}
	return stdout
}

// threeSites is a grid in which each pair of sites has a path.
func threeSites() grid.Config {
	cfg := labtest.LaunchConfig(map[string]any{"jobs": 2, "processes": 2})
	cfg.Profile = labtest.NoTraversalProfile
	return cfg
}

// script writes a program.
func script(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(name, []byte("#!/bin/sh\n"+text), 0o700); err != nil {
		t.Fatal(err)
	}
	return name
}

// enterable is a folder for a test's files that the accounts of jobs can enter.
func enterable(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(lab.Dir(), "enterable-")
	if err == nil {
		err = os.Chmod(dir, 0o711)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// enterableSelf is a copy of this test's program that the accounts of jobs can run.
func enterableSelf(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(enterable(t), "test")
	if err := os.WriteFile(name, program, 0o755); err != nil {
		t.Fatal(err)
	}
	return name
}

// smallDisk mounts a disk of 2 MiB and returns its path.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := enterable(t)
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// A job over three sites, of which two accept no connections: placed, staged, started, and its
// output, exit status and files are returned.
func TestRunOverSites(t *testing.T) {
	t.Parallel() // most of it is waiting
	labtest.NeedLab(t)
	cfg, disk := threeSites(), smallDisk(t)
	cfg.Settings["helper open/n2"] = map[string]any{"node_service": map[string]any{"store": disk}}
	w := newWorld(t, labtest.SiteOpen+labtest.SiteClosed+labtest.SiteShut, cfg)
	w.AwaitHosts(5)
	examples := labtest.Program(t, "-lab")

	t.Run("messages", func(t *testing.T) {
		out := w.ends(0, "where the 6 ranks ran", w.Isthmus("run", "-n", "6", "--installed", "--show-map", examples, "example", "pingpong", "--max", "1024", "--reps", "3"))
		if !strings.Contains(out, ":0] ") {
			t.Errorf("rank 0 wrote nothing:\n%s", out)
		}
	})
	t.Run("places", func(t *testing.T) {
		out := w.ends(0, "", w.Isthmus("run", "--hosts", "n1@shut:1,n2@closed:2,open/n1:1", "sh", "-c", "echo $ISTHMUS_RANK of $ISTHMUS_SIZE"))
		lines := strings.SplitAfter(out, "\n")
		slices.Sort(lines)
		if got, want := strings.Join(lines, ""), "[closed/n2:1] 1 of 4\n[closed/n2:2] 2 of 4\n[open/n1:3] 3 of 4\n[shut/n1:0] 0 of 4\n"; got != want {
			t.Errorf("got\n%swant\n%s", got, want)
		}
		table := w.ends(0, "", w.Isthmus("run", "-n", "7", "--dry-run", "sh"))
		if !strings.Contains(table, "spread: 7 processes (7 ranks, 1 copies each) on 5 of 5 hosts, 3 sites") {
			t.Errorf("the dry run says\n%s", table)
		}
		var plan struct{ Hosts []struct{ Processes []any } }
		if err := json.Unmarshal([]byte(w.ends(0, "", w.Isthmus("run", "-n", "2", "-r", "3", "--dry-run", "--json", "sh"))), &plan); err != nil || len(plan.Hosts) < 3 {
			t.Errorf("3 copies on %d hosts (%v)", len(plan.Hosts), err)
		}
		table = w.ends(0, "", w.Isthmus("run", "-n", "2", "--replicas", "2", "--dry-run", "--mtbf", "30d", "--walltime", "1d", "sh"))
		if !strings.Contains(table, "FAILS IN 1d, IF A HOST FAILS EVERY 30d\n") || !strings.Contains(table, "\n2         4          0.215 %\n") {
			t.Errorf("the dry run says of failures\n%s", table)
		}
	})
	t.Run("files", func(t *testing.T) {
		program := script(t, "read word\necho $ISTHMUS_RANK heard $word >out.$ISTHMUS_RANK\ncat out.$ISTHMUS_RANK; cat data\n"+strings.Repeat("# "+strings.Repeat("x", 1000)+"\n", 3000))
		data := filepath.Join(filepath.Dir(program), "data")
		if err := os.WriteFile(data, []byte("data\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(t.TempDir(), "results")
		words := []string{"run", "-v", "--hosts", "n1@shut:1,n1@closed:1", "--input", data, "--fetch", "out.*", "--fetch-to", to, "--output", "json", program}
		for _, staged := range []string{`\b[1-9][0-9]{6} bytes of files were sent to 2 hosts`, `\b0 bytes of files were sent to 2 hosts`} {
			cmd := w.Isthmus(words...)
			cmd.Stdin = strings.NewReader("hello\n")
			stdout, stderr, status := labtest.Run(t, cmd)
			if status != 0 || !regexp.MustCompile(staged).MatchString(stderr) {
				t.Errorf("status %d, want %q in\n%s", status, staged, stderr)
			}
			for _, line := range []string{
				`{"rank":0,"host":"shut/n1","stream":"stdout","text":"0 heard hello"}`, `{"rank":0,"host":"shut/n1","stream":"stdout","text":"data"}`,
				`{"rank":1,"host":"closed/n1","stream":"stdout","text":"1 heard"}`, `{"rank":1,"host":"closed/n1","stream":"stdout","text":"data"}`,
			} {
				if !strings.Contains(stdout, line+"\n") {
					t.Errorf("no %s in\n%s", line, stdout)
				}
			}
			for name, want := range map[string]string{"shut/n1/out.0": "0 heard hello\n", "closed/n1/out.1": "1 heard\n"} {
				if got, err := os.ReadFile(filepath.Join(to, name)); err != nil || string(got) != want {
					t.Errorf("%s: %q, %v; want %q", name, got, err, want)
				}
			}
		}
	})
	t.Run("status", func(t *testing.T) {
		w.ends(9, "exit status 9 (", w.Isthmus("run", "-n", "5", "sh", "-c", "[ $ISTHMUS_RANK != 3 ] || exit 9; exec sleep 1000"))
		w.ends(127, "no-such-program-here", w.Isthmus("run", "-n", "3", "no-such-program-here"))
		w.ends(1, "would fit: 10 ranks", w.Isthmus("run", "-n", "11", "sh"))
		w.ends(1, "shut/n9 is not a host of the grid now", w.Isthmus("run", "--hosts", "n9@shut:2", "sh"))
		w.ends(2, "is for jobs with replicas", w.Isthmus("run", "-n", "2", "--send-deterministic", "sh"))
	})
	t.Run("profile", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "profile.yaml")
		write := func(latency string) {
			text := "groups:\n- {name: head, processes: 1, sites: any}\n- {name: crew, processes: 3, sites: any}\nbetween:\n- {groups: [head, crew], latency: " + latency + "}\n"
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		words := []string{"run", "--profile", file, "sh", "-c", "echo $ISTHMUS_GROUPS"}
		write("1s")
		if out := w.ends(0, "", w.Isthmus(words...)); strings.Count(out, "] head:1,crew:3\n") != 4 {
			t.Errorf("the ranks wrote\n%s", out)
		}
		write("1us")
		w.ends(1, "latency", w.Isthmus(words...))
	})
	t.Run("copies", func(t *testing.T) {
		out := w.ends(0, "", w.Isthmus("run", "-n", "2", "-r", "2", "--independent", "sh", "-c", "echo copy ${ISTHMUS_COPY:-0} of $ISTHMUS_RANK on $(pwd)"))
		hosts := map[string]bool{}
		for line := range strings.Lines(out) {
			host, rest, _ := strings.Cut(line, ":")
			rank, _, _ := strings.Cut(rest, "]")
			hosts[host+" "+rank] = true // no rank twice on a host
		}
		if len(hosts) != 4 || strings.Count(out, "copy 1 of") != 2 {
			t.Errorf("the copies wrote\n%s", out)
		}
	})
	t.Run("limit", func(t *testing.T) {
		if out := w.ends(0, "", w.Isthmus("run", "-n", "2", "--limit", "nofile=77", "sh", "-c", "ulimit -n")); strings.Count(out, "] 77\n") != 2 {
			t.Errorf("the limits are\n%s", out)
		}
	})
	t.Run("survive", func(t *testing.T) {
		out := w.ends(0, "", w.Isthmus("run", "-n", "3", "--survive", "--hang", "20s", "sh", "-c", "[ $ISTHMUS_RANK != 1 ] || kill -9 $$; echo goes on"))
		if strings.Count(out, "] goes on\n") != 2 {
			t.Errorf("the survivors wrote\n%s", out)
		}
		w.ends(2, "--hang 2h0m0s: want 1s to 1h0m0s", w.Isthmus("run", "-n", "3", "--hang", "2h", "sh"))
	})
	t.Run("folder", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "output")
		if out := w.ends(0, "", w.Isthmus("run", "-n", "3", "--output", dir, "sh", "-c", "echo rank $ISTHMUS_RANK")); out != "" {
			t.Errorf("beside the folder there is %q", out)
		}
		var all strings.Builder
		names, err := filepath.Glob(filepath.Join(dir, "*"))
		for _, name := range names {
			text, _ := os.ReadFile(name)
			all.Write(text)
		}
		for r := range 3 {
			if !strings.Contains(all.String(), fmt.Sprintf("rank %d\n", r)) {
				t.Errorf("the files %q, %v, have %q", names, err, all.String())
			}
		}
	})
	t.Run("spoilt", func(t *testing.T) {
		program := script(t, "echo as it was written\n"+strings.Repeat("# "+strings.Repeat("x", 1000)+"\n", 3000))
		run := func(staged string) {
			t.Helper()
			out := w.ends(0, staged, w.Isthmus("run", "-v", "--hosts", "n1@shut:1", program))
			if out != "[shut/n1:0] as it was written\n" {
				t.Errorf("it wrote %q", out)
			}
		}
		run(" bytes of files were sent to 1 hosts")
		chunks, err := filepath.Glob(filepath.Join(w.Store("shut/n1"), "chunks", "*"))
		if err != nil || len(chunks) < 3 {
			t.Fatalf("chunks %q, %v", chunks, err)
		}
		for _, name := range chunks {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if at := bytes.Index(text, []byte("as it was")); at >= 0 {
				copy(text[at:], "as it IS!")
				if err := os.WriteFile(name, text, 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
		run(" 1048576 bytes of files were sent to 1 hosts")
		run(" 0 bytes of files were sent to 1 hosts")
	})
	t.Run("full", func(t *testing.T) {
		big := make([]byte, 3<<20)
		rand.NewChaCha8([32]byte{}).Read(big) // no two chunks are the same
		input := filepath.Join(t.TempDir(), "big")
		if err := os.WriteFile(input, big, 0o600); err != nil {
			t.Fatal(err)
		}
		w.ends(1, "no space left", w.Isthmus("run", "--hosts", "n2@open:1", "--input", input, "sh", "-c", "cat big"))
		if out := w.ends(0, "", w.Isthmus("run", "--hosts", "n2@open:1", script(t, "echo small"))); out != "[open/n2:0] small\n" {
			t.Errorf("it wrote %q", out)
		}
		w.AwaitNoJobs()
		if left, err := os.ReadDir(filepath.Join(disk, "jobs")); err != nil || len(left) > 0 {
			t.Errorf("folders %v, %v", left, err)
		}
	})
	w.AwaitNoJobs()
}

// A job ends by a signal, by isthmus kill, and by the death of a helper; but not by that of the
// submitter's own helper.
func TestJobsThatAreEnded(t *testing.T) {
	t.Parallel() // most of it is waiting
	w := newWorld(t, labtest.SiteOpen+labtest.SiteClosed+labtest.SiteShut, threeSites())
	w.AwaitHosts(5)
	sleepers := func() *exec.Cmd {
		return w.Isthmus("run", "--hosts", "n1@open:1,n1@closed:2,n1@shut:1", "sh", "-c", "echo ready; exec sleep 1000")
	}
	t.Run("signal", func(t *testing.T) {
		b := w.Begin(sleepers(), "] ready\n", 4)
		b.Cmd.Process.Signal(syscall.SIGINT)
		if status := b.ExitStatus(w.World); status != 128+int(syscall.SIGINT) {
			t.Errorf("status %d after SIGINT:\n%s", status, b.Output())
		}
		w.AwaitNoJobs()
	})
	t.Run("detached", w.outlivesItsSubmitter)
	t.Run("stubborn", func(t *testing.T) {
		b := w.Begin(w.Isthmus("run", "--hosts", "n1@open:1,n1@closed:2,n1@shut:1", "sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done"), "] ready\n", 4)
		b.Cmd.Process.Signal(syscall.SIGTERM)
		if status := b.ExitStatus(w.World); status != 128+int(syscall.SIGTERM) {
			t.Errorf("status %d after SIGTERM:\n%s", status, b.Output())
		}
		w.AwaitNoJobs()
	})
	t.Run("kill", func(t *testing.T) {
		b := w.Begin(sleepers(), "] ready\n", 4)
		var job struct {
			Job       string
			State     string
			Processes int
			Hosts     []string
		}
		out, err := w.Isthmus("ps", "--json").Output()
		if err == nil {
			err = json.Unmarshal(out, &job)
		}
		if err != nil || job.Processes != 4 || len(job.Hosts) != 3 || !strings.HasPrefix(job.Job, "sh-") {
			t.Fatalf("ps: %s, %v", out, err)
		}
		w.ends(0, "", w.Isthmus("kill", job.Job[:10]))
		if status := b.ExitStatus(w.World); status == 0 {
			t.Errorf("status 0 after kill:\n%s", b.Output())
		}
		w.ends(1, "not found on any host", w.Isthmus("kill", job.Job))
		w.AwaitNoJobs()
	})
	t.Run("one of three on a host for two", func(t *testing.T) {
		occupy := func() *labtest.Background {
			return w.Begin(w.Isthmus("run", "--hosts", "n1@open:1", "sh", "-c", "echo ready; exec sleep 1000"), "] ready\n", 1)
		}
		first, second := occupy(), occupy()
		w.ends(1, "1 said busy", w.Isthmus("run", "--wait", "0", "--hosts", "n1@open:1", "true"))
		third := w.Begin(w.Isthmus("run", "--hosts", "n1@open:1", "echo", "my turn"), "waiting for other jobs on open/n1 to end", 1)
		first.Cmd.Process.Signal(syscall.SIGTERM)
		if status := third.ExitStatus(w.World); status != 0 || !strings.Contains(third.Output(), "] my turn\n") {
			t.Errorf("status %d of the job that waited:\n%s", status, third.Output())
		}
		second.Cmd.Process.Signal(syscall.SIGTERM)
		first.ExitStatus(w.World)
		second.ExitStatus(w.World)
		w.AwaitNoJobs()
	})
	t.Run("helper", func(t *testing.T) {
		b := w.Begin(sleepers(), "] ready\n", 4)
		w.Daemon("helper closed/n1").Kill()
		if err := w.Daemon("helper closed/n1").Start(w.Ctx); err != nil {
			t.Fatal(err)
		}
		w.AwaitLog("helper closed/n1", "job taken over")
		b.Cmd.Process.Signal(syscall.SIGTERM)
		if status := b.ExitStatus(w.World); status != 128+int(syscall.SIGTERM) || strings.Contains(b.Output(), "lost with closed/n1") {
			t.Errorf("status %d after the helper of closed/n1 was killed and started anew:\n%s", status, b.Output())
		}
		w.AwaitNoJobs()
	})
	t.Run("own helper", func(t *testing.T) {
		flag := filepath.Join(enterable(t), "flag")
		b := w.Begin(w.Isthmus("run", "--hosts", "n2@closed:2,n1@shut:1", "sh", "-c", "echo ready; while [ ! -e "+flag+" ]; do sleep 0.1; done; echo went on"), "] ready\n", 3)
		w.Daemon("helper open/n1").Kill()
		w.Until("the launcher to see that", func() bool { return strings.Contains(b.Output(), "cannot be reached; it is tried again") }, b.Output)
		if err := w.Daemon("helper open/n1").Start(w.Ctx); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(flag, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if status := b.ExitStatus(w.World); status != 0 || strings.Count(b.Output(), "] went on\n") != 3 {
			t.Errorf("status %d after the own helper was killed and started anew:\n%s", status, b.Output())
		}
		w.AwaitNoJobs()
	})
}
