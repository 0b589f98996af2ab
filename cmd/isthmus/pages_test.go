package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestCompletion: a shell gets the words that may follow, and what it asks about is not
// run.
func TestCompletion(t *testing.T) {
	dir := t.TempDir()
	const ask = "--generate-bash-completion"
	if got := isthmus(t, dir, "run", "-n", "1", "--label", "", "echo", ask); got.status != 0 || got.stdout != ask+"\n" {
		t.Errorf("a program's own word: %+v", got)
	}
	t.Setenv("ISTHMUS_COMPLETE", "1")
	for _, c := range []struct {
		words []string
		want  string // a line
		not   string
	}{
		{[]string{}, "status", "demo"}, // which is hidden
		{[]string{"ca"}, "issue", "status"},
		{[]string{"run", "--ran"}, "--ranks", "--key"},
		{[]string{"broker", "--conf"}, "--config", "--listen"},
	} {
		got := isthmus(t, dir, append(c.words, ask)...)
		lines := "\n" + got.stdout
		if got.status != 0 || got.stderr != "" || !strings.Contains(lines, "\n"+c.want+"\n") || strings.Contains(lines, "\n"+c.not+"\n") {
			t.Errorf("after %q: %+v; want %q, not %q", c.words, got, c.want, c.not)
		}
	}
	for _, words := range [][]string{{"run", "-n", "1", "touch", "made"}, {"run", "-n", "1", "--", "touch", "made"}, {"ca", "init", "x"}} {
		if got := isthmus(t, dir, append(words, ask)...); got.status != 0 || got.stdout != "" || got.stderr != "" {
			t.Errorf("after %q: %+v", words, got)
		}
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
		t.Errorf("asking made %v, %v", files, err)
	}
}

// TestCompletionOfShells: what is printed for a shell is what it reads, and bash gets
// words by it.
func TestCompletionOfShells(t *testing.T) {
	dir := t.TempDir()
	for shell, want := range map[string]string{"bash": "complete -o bashdefault -o default -F _isthmus isthmus\n", "zsh": "#compdef isthmus\n", "fish": "complete -c isthmus "} {
		if got := isthmus(t, dir, "completion", shell); got.status != 0 || got.stderr != "" || !strings.Contains(got.stdout, want) {
			t.Errorf("%s: %+v", shell, got)
		}
	}
	bash, err := exec.LookPath("bash")
	if err != nil {
		return // nothing to try it with
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(dir, "isthmus.bash")
	if err := os.WriteFile(script, []byte(isthmus(t, dir, "completion", "bash").stdout), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bash, "-c", `. "$1"; COMP_WORDS=("$2" ca is); COMP_CWORD=2; _isthmus; echo "${COMPREPLY[@]}"`, "bash", script, self)
	cmd.Env = append(os.Environ(), "ISTHMUS_TEST_MAIN=1")
	if out, err := cmd.Output(); err != nil || string(out) != "issue issuer\n" {
		t.Errorf("bash completes with %q, %v", out, err)
	}
}

// TestManual: the page has the commands and their flags, and nothing of this machine.
func TestManual(t *testing.T) {
	got := isthmus(t, t.TempDir(), "man")
	if got.status != 0 || got.stderr != "" {
		t.Fatalf("%+v", got)
	}
	for _, want := range []string{".TH isthmus 1\n", ".SH run\n", ".SS issue\n", `\fB--ranks\fP`, "(default: this host's name)"} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	if strings.Contains(got.stdout, `\[la]`) {
		t.Error("a flag's value is taken for a link")
	}
}
