//go:build system

package launch

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// tag is what stands before a line of output.
var tag = regexp.MustCompile(`(?m)^\[[^\]]*\] `)

// What a job is given reaches its processes over the grid as it does on one machine: words, variables, files and
// input in whatever encoding, with commas and spaces; what it does not read is left to the shell, and a
// program that cannot be started has the status that shells give it.
func TestRunIsAlikeHereAndOverTheGrid(t *testing.T) {
	labtest.NeedLab(t)
	w := newWorld(t, labtest.SiteOpen, labtest.LaunchConfig(map[string]any{"jobs": 4, "processes": 2}))
	w.AwaitHosts(2)
	const odd = "\xff\xc3 ,x"
	for _, helper := range []string{"none", w.Socket("open/n1")} {
		dir := t.TempDir()
		file := func(name string, mode os.FileMode, text string) string {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), mode); err != nil {
				t.Fatal(err)
			}
			return "./" + name
		}
		run := func(words ...string) *exec.Cmd {
			cmd := w.Isthmus(append([]string{"run", "--helper", helper, "-n", "1"}, words...)...)
			cmd.Dir = dir
			return cmd
		}
		odd1 := run(file("prog"+odd, 0o700, "#!/bin/sh\nread word\nprintf '%s|%s|%s\\n' \"$1\" \"$WORD\" \"$word\"\n"), odd)
		odd1.Stdin, odd1.Env = strings.NewReader(odd+"\n"), append(odd1.Env, "WORD="+odd)
		if helper != "none" {
			odd1.Args = append(odd1.Args[:2:2], append([]string{"--env", "WORD"}, odd1.Args[2:]...)...)
		}
		if out := tag.ReplaceAllString(w.ends(0, "", odd1), ""); out != odd+"|"+odd+"|"+odd+"\n" {
			t.Errorf("helper %s: %q", helper, out)
		}

		lines := file("lines", 0o600, "a\nb\nc\n")
		for _, loop := range []string{"cat " + lines + " | while read x; do \"$@\" echo $x; done", "while read x; do \"$@\" echo $x; done <" + lines} {
			cmd := run()
			shell := exec.CommandContext(w.Ctx, "sh", append([]string{"-c", loop, "sh"}, cmd.Args...)...)
			shell.Dir, shell.Env = dir, cmd.Env
			if out := tag.ReplaceAllString(w.ends(0, "", shell), ""); out != "a\nb\nc\n" {
				t.Errorf("helper %s, %s: %q", helper, loop, out)
			}
		}

		for program, status := range map[string]int{
			"./none": 127, "no-such-program-here": 127, file("plain", 0o600, ""): 126, file("script", 0o700, "#!/no/such/interpreter\n"): 127,
			file("elsewhere", 0o700, "\x7fELF\x02\x01\x01"+strings.Repeat("\x00", 9)+"\x02\x00\xf3\x00"): 126,
		} {
			w.ends(status, filepath.Base(program), run(program))
		}

		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		cmd := run("sh", "-c", "while echo words; do :; done")
		var said strings.Builder
		cmd.Stdout, cmd.Stderr = full, &said
		if err := cmd.Run(); err == nil || cmd.ProcessState.ExitCode() != 1 || !strings.Contains(said.String(), "no space left on device") {
			t.Errorf("helper %s, on a full disk: %v\n%s", helper, err, said.String())
		}
		full.Close()
	}
}
