package ranks

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestOutputAsJSON(t *testing.T) {
	var out bytes.Buffer
	o := JSON(&out)
	write := func(p Place, stdout, stderr string) {
		t.Helper()
		a, b, err := o.Of(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range []struct {
			to   interface{ Write([]byte) (int, error) }
			text string
		}{{a, stdout}, {b, stderr}} {
			if _, err := w.to.Write([]byte(w.text)); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(Place{Host: "a/n1", Rank: 3}, "one\n\"two\"\nno end", "bad \xff\n")
	write(Place{Rank: 0, Copy: 1}, "", "x\n")
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	want := []string{
		`{"rank":3,"host":"a/n1","stream":"stdout","text":"one"}`,
		`{"rank":3,"host":"a/n1","stream":"stdout","text":"\"two\""}`,
		`{"rank":3,"host":"a/n1","stream":"stderr","text":"bad \ufffd"}`,
		`{"rank":0,"copy":1,"stream":"stderr","text":"x"}`,
		`{"rank":3,"host":"a/n1","stream":"stdout","text":"no end"}`,
	}
	if got := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n"); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", out.String(), strings.Join(want, "\n"))
	}
	for line := range strings.Lines(out.String()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("%q is no JSON", line)
		}
	}
}

// A local job writes to the folder without tags or line limits.
func TestOutputInFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "folder")
	o, err := NewOutput(dir, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", maxLine+100) + "\nno end"
	j := jobOf("print", long, 2, nil, nil)
	j.Output = o
	if err := run(t, j); err != nil {
		t.Fatal(err)
	}
	if w, _, err := o.Of(Place{Rank: 1, Copy: 2}); err != nil {
		t.Error(err)
	} else if _, err := w.Write([]byte("second copy")); err != nil {
		t.Error(err)
	}
	if err := o.Close(); err != nil {
		t.Error(err)
	}
	for name, want := range map[string]string{"rank.0.out": long, "rank.1.out": long, "rank.1.err": "complaint", "rank.1.2.out": "second copy"} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
			t.Errorf("%s: %.40q, %v; want %.40q", name, got, err, want)
		}
	}
}

// Replicas that write one standard output have their own standard error.
func TestOutputOfReplicas(t *testing.T) {
	var stdout, stderr, objects bytes.Buffer
	dir := t.TempDir()
	files, err := Folder(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []Output{Lines(&stdout, &stderr), JSON(&objects), files} {
		for c, text := range []string{"first\n", "second\n", "first again\n"} {
			out, diagnostics, err := o.Of(Place{Rank: 3, Copy: c % 2, Merged: true})
			if err != nil {
				t.Fatal(err)
			}
			if c == 1 {
				out.Write([]byte("of both\n"))
			}
			diagnostics.Write([]byte(text))
		}
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, c := range []struct{ got, want string }{
		{stdout.String(), "[3] of both\n"},
		{stderr.String(), "[3.0] first\n[3.1] second\n[3.0] first again\n"},
		{objects.String(), `{"rank":3,"stream":"stderr","text":"first"}
{"rank":3,"stream":"stdout","text":"of both"}
{"rank":3,"copy":1,"stream":"stderr","text":"second"}
{"rank":3,"stream":"stderr","text":"first again"}
`},
	} {
		if c.got != c.want {
			t.Errorf("got\n%s\nwant\n%s", c.got, c.want)
		}
	}
	for name, want := range map[string]string{"rank.3.out": "of both\n", "rank.3.err": "first\nfirst again\n", "rank.3.1.err": "second\n"} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, want)
		}
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != 3 {
		t.Errorf("there is %v, %v", all, err)
	}
}

// An error in creating the folder is returned before anything starts.
func TestOutputWithoutAFolder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var path *os.PathError
	if _, err := NewOutput(file, nil, nil); !errors.As(err, &path) {
		t.Errorf("%v, want what is wrong with %s", err, file)
	}
}

// Of a line that does not go on, a live output gets what there is, and the rest belongs to the same line
// unless another process has written meanwhile. Whole lines stay whole.
func TestUnfinishedLines(t *testing.T) {
	type step struct {
		rank   int
		stream string // "": time passes
		text   string
	}
	for name, tc := range map[string]struct {
		live  bool
		steps []step
		want  string // after the steps
		end   string // what Close adds
	}{
		"a prompt":                 {true, []step{{0, "stdout", "name? "}, {}}, "[0] name? ", "\n"},
		"a prompt too early":       {true, []step{{0, "stdout", "name? "}}, "", "[0] name? \n"},
		"an answer to it":          {true, []step{{0, "stdout", "name? "}, {}, {0, "stdout", "hello x\nnext\n"}}, "[0] name? hello x\n[0] next\n", ""},
		"dots":                     {true, []step{{0, "stdout", "."}, {}, {0, "stdout", "."}, {}, {0, "stdout", ".\n"}}, "[0] ...\n", ""},
		"after a line":             {true, []step{{0, "stdout", "one\ntwo"}, {}}, "[0] one\n[0] two", "\n"},
		"another rank":             {true, []step{{0, "stdout", "name? "}, {}, {1, "stdout", "line\n"}, {0, "stdout", "more\n"}}, "[0] name? \n[1] line\n[0] more\n", ""},
		"another rank's own":       {true, []step{{0, "stdout", "a"}, {}, {1, "stdout", "b"}, {}, {0, "stdout", "c\n"}}, "[0] ac\n", "[1] b\n"},
		"its own, twice":           {true, []step{{0, "stdout", "a"}, {}, {0, "stderr", "b"}, {}, {0, "stdout", "c\n"}}, "[0] a\n[0.0] b\n[0] c\n", ""},
		"its own complaint":        {true, []step{{0, "stdout", "name? "}, {}, {0, "stderr", "none\n"}}, "[0] name? \n[0] none\n", ""},
		"another's unfinished one": {true, []step{{0, "stdout", "name? "}, {}, {1, "stdout", "li"}, {0, "stdout", "x\n"}, {1, "stdout", "ne\n"}}, "[0] name? x\n[1] line\n", ""},
		"no text":                  {true, []step{{0, "stdout", "a\n"}, {}, {}}, "[0] a\n", ""},
		"whole lines only":         {false, []step{{0, "stdout", "name? "}, {}, {1, "stdout", "line\n"}}, "[1] line\n", "[0] name? \n"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var got bytes.Buffer
				o := LiveLines(&got, &got, tc.live, tc.live)
				writers := map[string]io.Writer{}
				for rank := range 2 {
					stdout, stderr, err := o.Of(Place{Rank: rank, Merged: true})
					if err != nil {
						t.Fatal(err)
					}
					writers[fmt.Sprint(rank, "stdout")], writers[fmt.Sprint(rank, "stderr")] = stdout, stderr
				}
				for _, s := range tc.steps {
					if s.stream == "" {
						time.Sleep(partialTime)
						synctest.Wait()
					} else if _, err := writers[fmt.Sprint(s.rank, s.stream)].Write([]byte(s.text)); err != nil {
						t.Fatal(err)
					}
				}
				want := strings.ReplaceAll(tc.want, "[0] none", "[0.0] none")
				if got.String() != want {
					t.Errorf("%q, want %q", got.String(), want)
				}
				if err := o.Close(); err != nil || got.String() != want+tc.end {
					t.Errorf("closed: %q, %v, want %q", got.String(), err, want+tc.end)
				}
			})
		})
	}
}

// A rank whose output does not fit on the disk, or cannot be written for another reason, fails with that
// reason, however it ends itself; in every form of output.
func TestOutputThatIsLostIsNamed(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	for name, o := range map[string]Output{"lines": Lines(full, nil), "live lines": LiveLines(full, full, true, true), "objects": JSON(full)} {
		for part, arg := range map[string]string{"print": "words\n", "talk": ""} {
			j := jobOf(part, arg, 1, nil, nil)
			j.Output = o
			err := run(t, j)
			var exit *ExitError
			if !errors.As(err, &exit) || exit.Status != 1 || exit.Rank != 0 || !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "its output: ") {
				t.Errorf("%s, %s: %v", name, part, err)
			}
		}
	}
}
