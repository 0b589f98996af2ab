package rules

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/broker"
	"github.com/isthmus-grid/isthmus/connhelper"
	"github.com/isthmus-grid/isthmus/frontal"
	"github.com/isthmus-grid/isthmus/internal/daemon"
	"github.com/isthmus-grid/isthmus/launch/starter"
	"github.com/isthmus-grid/isthmus/proxy"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
	"github.com/isthmus-grid/isthmus/test/internal/page"
)

// documentation lists the pages.
func documentation(t *testing.T) []string {
	t.Helper()
	pages, err := filepath.Glob(filepath.Join(labtest.Root, "docs", "*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatalf("pages: %v, %v", pages, err)
	}
	names := []string{"README.md", "CONTRIBUTING.md"}
	for _, p := range pages {
		names = append(names, "docs/"+filepath.Base(p))
	}
	return names
}

// TestCommandsInPages: each command in the documentation exists as it is written there: program,
// command, flags, packages, tests and files.
func TestCommandsInPages(t *testing.T) {
	c := newCommandChecker(t)
	lines := 0
	for _, name := range documentation(t) {
		p := page.Parse(labtest.ReadFile(t, name))
		c.folder = ""
		for _, line := range append(p.Commands(), p.Spans...) {
			lines++
			for _, complaint := range c.line(line) {
				t.Errorf("%s:%d: `%s`: %s", name, line.Number, line.Text, complaint)
			}
		}
	}
	if lines < 1000 {
		t.Errorf("only %d command lines and words between backquotes were found", lines)
	}
}

// The checker must be able to complain.
func TestCommandRulesComplain(t *testing.T) {
	c := newCommandChecker(t)
	for _, tc := range []struct {
		line string
		want string // in the only complaint; "": none
	}{
		{"isthmus rnu -n 4 ./program", "isthmus: unknown command rnu; did you mean run?"},
		{"isthmus run -n 4 --show-maps ./program", "isthmus run: unknown flag --show-maps; did you mean --show-map?"},
		{"isthmus run -n 4 ./program --any", ""},
		{"isthmus run -n 4 isthmus-lab example tsqr --row 100", "isthmus-lab example tsqr: unknown flag --row; did you mean --rows?"},
		{"isthmus run -n 4 isthmus-lab example tsqr --rows 100", ""},
		{"isthmus run --groups", "isthmus run: --groups needs a value"},
		{"isthmus run --json=yes", "isthmus run: --json takes no value"},
		{"isthmus ca", "isthmus ca: want one of its commands"},
		{"isthmus ca isue broker b1", "isthmus ca: unknown command isue; did you mean issue?"},
		{"isthmus ca issue broker b1 --dir ca", "isthmus ca issue: flags come before other words: put --dir in front of broker"},
		{"sudo -u isthmus isthmus ca enroll --config c --tokn - < token", "isthmus ca enroll: unknown flag --tokn; did you mean --token?"},
		{"isthmus ca revoke --dir ca ... user alice", ""},
		{"export X=$(isthmus job grand k)", "isthmus job: unknown command grand; did you mean grant?"},
		{"isthmus-frontal --chek --config f", "isthmus-frontal: unknown flag --chek; did you mean --check?"},
		{"isthmus-forntal --check", "there is no program isthmus-forntal; did you mean isthmus-frontal?"},
		{"isthmus-lab bench colls --explain", "isthmus-lab bench: unknown command colls; did you mean coll?"},
		{"go run ./cmd/isthmus-lab dem", "isthmus-lab: unknown command dem; did you mean demo?"},
		{"go test ./linc/...", "there is no package ./linc/..."},
		{"go test ./mpilib -run EveryAlgorithmm", "no test of ./mpilib matches -run EveryAlgorithmm"},
		{"go test ./collectives -run Simulated -evry", "no test of ./collectives has the flag -evry"},
		{"go test ./collectives -run Simulated -every", ""},
		{"go test -tags=system ./mpilib", ""},
		{"go build -o bin/ ./cmd/isthmus-laf", "there is no package ./cmd/isthmus-laf"},
		{"(cd deploy/pack && go run . -out x)", "deploy/pack: unknown flag -out"},
		{"(cd deploy/pack && go run . -arch arm64)", ""},
		{".ci/runn vet", "there is no file .ci/runn"},
		{".ci/run vett", ".ci/run has no step vett"},
		{"cd deploy/compose && ./prepared", "there is no file deploy/compose/prepared"},
		{"systemctl reload isthmus-fontal", "there is no unit isthmus-fontal"},
		{"install -D -m 644 deploy/systemd/isthmus.sysuser /usr/lib", "there is no file deploy/systemd/isthmus.sysuser"},
		{"docker compose exec c-n1 /usr/bin/isthmus hosts", "deploy/compose/compose.yaml has no service c-n1"},
		{"docker compose exec a-n1 /usr/bin/isthmus host", "isthmus: unknown command host; did you mean hosts?"},
	} {
		c.folder = ""
		got := strings.Join(c.line(page.Line{Text: tc.line}), "; ")
		if tc.want == "" && got != "" || !strings.HasPrefix(got, tc.want) {
			t.Errorf("%s: complaint %q, want %q", tc.line, got, tc.want)
		}
	}
	for span, want := range map[string]string{
		"--show-maps":                         "no command has the flag --show-maps; did you mean --show-map?",
		"--groups master:1":                   "",
		"isthmus status --frontal":            "",
		"isthmus host":                        "isthmus: unknown command host; did you mean hosts?",
		"examples/ray2mesh/farm/survived.go":  "there is no file examples/ray2mesh/farm/survived.go",
		"bench/NAME":                          "",
		"ISTHMUS_COL":                         "nothing reads ISTHMUS_COL; did you mean ISTHMUS_COLL?",
		"ISTHMUS_COLL=bcast=two-level:8":      "",
		"isthmus_limit_uses":                  "nothing has the metric isthmus_limit_uses",
		"isthmus v1 helper authentication":    "",
		"launch/offer":                        "",
		"launch/offers":                       "there is no file launch/offers",
		"link/stream.Stream":                  "",
		"docs/decisions/":                     "",
		"isthmus run --graph FILE --dry-runs": "isthmus run: unknown flag --dry-runs; did you mean --dry-run?",
	} {
		c.folder = ""
		got := strings.Join(c.line(page.Line{Text: span, Inline: true}), "; ")
		if want == "" && got != "" || !strings.HasPrefix(got, want) {
			t.Errorf("`%s`: complaint %q, want %q", span, got, want)
		}
	}
}

// A command is a program, or a command of one.
type command struct {
	flags    map[string]bool     // by name without dashes: whether it takes a value
	commands map[string]*command // those below it
	parse    bool                // whether its flags are known
	loose    bool                // flags may follow other words, which are another program's
}

func newCommand() *command {
	return &command{flags: map[string]bool{"help": false, "h": false, "version": false}, commands: map[string]*command{}, parse: true}
}

// commandChecker knows what the commands in the pages refer to.
type commandChecker struct {
	programs map[string]*command
	allFlags []string          // of all commands
	names    map[string]bool   // environment variables and metrics in the sources
	tests    map[string][]byte // the tests of a package, once they were read
	folder   string            // where the last cd led
}

func newCommandChecker(t *testing.T) *commandChecker {
	t.Helper()
	names, err := namesInSources()
	if err != nil {
		t.Fatal(err)
	}
	c := &commandChecker{programs: map[string]*command{}, names: names, tests: map[string][]byte{}}
	for _, name := range []string{"isthmus", "isthmus-lab"} {
		c.programs[name] = readCommands(t, name)
	}
	for name, run := range c.programs["isthmus"].commands {
		run.loose = name == "run" || name == "cc" || name == "cxx"
		run.parse = name != "cc" && name != "cxx"
	}
	c.addExamples(t)
	for _, d := range []*cli.Command{broker.Command(), frontal.Command(), proxy.Command(), connhelper.Command(), starter.Command()} {
		program := newCommand()
		for _, f := range d.Flags {
			_, isBool := f.(*cli.BoolFlag)
			for _, name := range f.Names() {
				program.flags[name] = !isBool
			}
		}
		c.programs["isthmus-"+d.Name] = program
	}
	for _, p := range c.programs {
		c.collectFlags(p)
	}
	return c
}

func (c *commandChecker) collectFlags(p *command) {
	for name := range p.flags {
		c.allFlags = append(c.allFlags, name)
	}
	for _, below := range p.commands {
		c.collectFlags(below)
	}
}

// readCommands reads the commands and flags of a program, which cannot be imported, from the list that
// its own tests keep.
func readCommands(t *testing.T, program string) *command {
	t.Helper()
	top := newCommand()
	at, above := top, top
	for line := range strings.Lines(labtest.ReadFile(t, "cmd/"+program+"/testdata/commands.txt")) {
		text := strings.TrimLeft(line, "\t")
		depth := len(line) - len(text)
		text, value := strings.CutSuffix(strings.TrimSpace(text), "=")
		names := strings.Split(text, ", ")
		switch {
		case strings.HasPrefix(text, "-"):
			for _, name := range names {
				at.flags[strings.TrimLeft(name, "-")] = value
			}
			continue
		case depth == 0:
			at = newCommand()
			above = at
			for _, name := range names {
				top.commands[name] = at
			}
		default:
			at = newCommand()
			for _, name := range names {
				above.commands[name] = at
			}
		}
	}
	return top
}

var definedFlag = regexp.MustCompile(`\.(Bool|Int|Int64|Uint|Uint64|String|Float64|Duration)(?:Var)?\((?:[^"\n]*, )?"([a-z-]+)", `)

// addExamples adds the flags of the examples, which are those of package flag in their sources.
func (c *commandChecker) addExamples(t *testing.T) {
	t.Helper()
	for name, example := range c.programs["isthmus-lab"].commands["example"].commands {
		files, err := filepath.Glob(filepath.Join(labtest.Root, "examples", name, "*", "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		if len(files) == 0 { // one of the NAS benchmarks
			files = []string{filepath.Join(labtest.Root, "examples", "npb", "kernel", "kernel.go")}
		}
		if flags := flagsIn(files); len(flags) > 0 {
			for flag, value := range flags {
				example.flags[flag] = value
			}
		} else {
			t.Fatalf("%s: no flags found", files)
		}
	}
}

// flagsIn returns the flags that sources define by package flag.
func flagsIn(files []string) map[string]bool {
	flags := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for _, m := range definedFlag.FindAllStringSubmatch(string(text), -1) {
			flags[m[2]] = m[1] != "Bool"
		}
	}
	return flags
}

// line checks a command line, or what is between backquotes.
func (c *commandChecker) line(l page.Line) (all []string) {
	if l.Inline {
		if complaint, done := c.span(l.Text); done {
			return complaint
		}
	}
	folder := c.folder
	for _, words := range page.Simple(l.Text) {
		all = append(all, c.simple(words, l.Inline)...)
	}
	if l.Inline || strings.Contains(l.Text, "(cd ") {
		c.folder = folder
	}
	return all
}

// foreignFlags are those in the pages that belong to the script test/bench/peers, and to Open MPI.
var foreignFlags = []string{"yes", "mca"}

var (
	protocolLabel = regexp.MustCompile(`^isthmus (grant )?v1\b`)
	flagSpan      = regexp.MustCompile(`^--([a-z][a-z0-9-]*)`)
	variable      = regexp.MustCompile(`^(ISTHMUS_[A-Z0-9_]*[A-Z0-9])(=|$)`)
	metric        = regexp.MustCompile(`^isthmus_([a-z_]+)($|\{)`)
)

// span checks what is between backquotes and is no command line.
func (c *commandChecker) span(text string) (all []string, done bool) {
	if protocolLabel.MatchString(text) {
		return nil, true
	}
	if m := flagSpan.FindStringSubmatch(text); m != nil {
		if !slices.Contains(c.allFlags, m[1]) && !slices.Contains(foreignFlags, m[1]) {
			all = append(all, fmt.Sprintf("no command has the flag --%s%s", m[1], daemon.DidYouMean(m[1], "--", c.allFlags)))
		}
		return all, true
	}
	if m := variable.FindStringSubmatch(text); m != nil {
		if !c.names[m[1]] {
			all = append(all, fmt.Sprintf("nothing reads %s%s", m[1], daemon.DidYouMean(m[1], "", keysOf(c.names))))
		}
		return all, !strings.Contains(text, " ")
	}
	if m := metric.FindStringSubmatch(text); m != nil {
		if name := "isthmus_" + m[1]; !c.names[name] && m[1] != "coll" { // an info key
			all = append(all, "nothing has the metric "+name)
		}
		return all, true
	}
	if !strings.Contains(text, " ") && !strings.HasPrefix(text, ".ci/") {
		return c.file(text), strings.Contains(text, "/")
	}
	return nil, false
}

func keysOf[V any](m map[string]V) (keys []string) {
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// simple checks a simple command.
func (c *commandChecker) simple(words []string, inline bool) (all []string) {
	first := strings.TrimPrefix(words[0], "/usr/bin/")
	switch {
	case first == "go":
		return c.goLine(words[1:], inline)
	case first == "cd" && len(words) > 1:
		c.folder = filepath.Join(c.folder, words[1])
		return c.file(words[1])
	case first == "systemctl", first == "journalctl":
		return units(words)
	case first == "docker" && len(words) > 1 && words[1] == "compose":
		return c.compose(words[2:], inline)
	case first == ".ci/run", first == ".ci/full":
		return ciSteps(first, words[1:])
	case c.programs[first] != nil:
		return c.program(first, c.programs[first], words[1:], inline)
	case strings.HasPrefix(first, "isthmus-") && !inline:
		return []string{fmt.Sprintf("there is no program %s%s", first, daemon.DidYouMean(first, "", keysOf(c.programs)))}
	case strings.HasPrefix(first, "./") && c.folder != "":
		words = append([]string{filepath.Join(c.folder, first)}, words[1:]...)
	}
	for _, word := range words {
		all = append(all, c.file(word)...)
	}
	return all
}

// program checks the words after a program's name or a command's.
func (c *commandChecker) program(path string, at *command, words []string, inline bool) []string {
	if !at.parse {
		return nil
	}
	for i := 0; i < len(words); i++ {
		word := words[i]
		switch {
		case word == "..." || word == "…":
		case word == "--" && i+1 < len(words):
			return c.simple(words[i+1:], inline)
		case len(word) < 2 || word[0] != '-':
			return c.operands(path, at, words[i:], inline)
		default:
			name, value, given := strings.Cut(strings.TrimLeft(word, "-"), "=")
			takes, known := at.flags[name]
			switch {
			case !known:
				return []string{fmt.Sprintf("%s: unknown flag %s%s", path, word, daemon.DidYouMean(name, "--", keysOf(at.flags)))}
			case takes && !given && i+1 < len(words):
				i++
			case takes && !given && !inline:
				return []string{fmt.Sprintf("%s: %s needs a value", path, word)}
			case !takes && given && value != "true" && value != "false":
				return []string{fmt.Sprintf("%s: --%s takes no value", path, name)}
			}
		}
	}
	if len(at.commands) > 0 && len(words) == 0 && !inline {
		return []string{path + ": want one of its commands"}
	}
	return nil
}

// operands checks what follows the flags.
func (c *commandChecker) operands(path string, at *command, words []string, inline bool) []string {
	if len(at.commands) > 0 {
		below := at.commands[words[0]]
		if below == nil {
			return []string{fmt.Sprintf("%s: unknown command %s%s", path, words[0], daemon.DidYouMean(words[0], "", keysOf(at.commands)))}
		}
		return c.program(path+" "+words[0], below, words[1:], inline)
	}
	if at.loose {
		if strings.HasPrefix(filepath.Base(words[0]), "isthmus") {
			return c.simple(words, inline)
		}
		return nil
	}
	for i, word := range words {
		if word == "--" {
			return c.simple(words[i+1:], inline)
		}
		// The lab's commands take flags and words in any order where the library does.
		if len(word) > 1 && word[0] == '-' && !strings.HasPrefix(path, "isthmus-lab run") {
			return []string{fmt.Sprintf("%s: flags come before other words: put %s in front of %s", path, word, words[0])}
		}
	}
	return nil
}
