package rules

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"gopkg.in/yaml.v3"

	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

var sourceName = regexp.MustCompile(`ISTHMUS_[A-Z0-9_]*[A-Z0-9]|isthmus_[a-z_]+`)

// namesInSources collects environment variables and metrics from everything that is no page.
var namesInSources = sync.OnceValues(func() (map[string]bool, error) {
	names := map[string]bool{}
	err := filepath.WalkDir(labtest.Root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch name := d.Name(); {
		case d.IsDir():
			if name == ".git" || name == "docs" {
				return fs.SkipDir
			}
		case d.Type().IsRegular() && (slices.Contains([]string{".go", ".sh", ".yaml", ".service"}, filepath.Ext(name)) || filepath.Ext(name) == ""):
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if strings.HasSuffix(path, "rules/commands_test.go") {
				return nil
			}
			for _, found := range sourceName.FindAllString(string(text), -1) {
				names[found] = true
			}
		}
		return nil
	})
	return names, err
})

// topFolders are the folders of the tree: a word that begins with one is the name of a file there.
var topFolders = func() []string {
	entries, err := os.ReadDir(labtest.Root)
	if err != nil {
		panic(err)
	}
	var all []string
	for _, e := range entries {
		if e.IsDir() && e.Name() != ".git" {
			all = append(all, e.Name())
		}
	}
	return all
}()

var qualifier = regexp.MustCompile(`\.[A-Z]\w*$`) // as in link/stream.Stream

var placeholder = regexp.MustCompile(`[A-Z]{3,}`)

// file checks a word that names a file of the tree; capitals stand for any name.
func (c *commandChecker) file(word string) []string {
	name := strings.TrimSuffix(strings.TrimPrefix(word, "./"), "/...")
	name = qualifier.ReplaceAllString(name, "")
	first, _, below := strings.Cut(name, "/")
	if !below || !slices.Contains(topFolders, first) || strings.ContainsAny(name, ":=(") {
		return nil
	}
	found, err := filepath.Glob(filepath.Join(labtest.Root, placeholder.ReplaceAllString(name, "*")))
	if err != nil || len(found) == 0 {
		return []string{"there is no file " + name}
	}
	return nil
}

var unitName = regexp.MustCompile(`^isthmus[a-z-]*$`)

// units checks the units of systemctl and journalctl.
func units(words []string) (all []string) {
	for _, word := range words {
		if !unitName.MatchString(word) {
			continue
		}
		if _, err := os.Stat(filepath.Join(labtest.Root, "deploy", "systemd", word+".service")); err != nil {
			all = append(all, "there is no unit "+word)
		}
	}
	return all
}

// compose checks the words after "docker compose".
func (c *commandChecker) compose(words []string, inline bool) []string {
	if len(words) < 3 || words[0] != "exec" {
		return nil
	}
	const file = "deploy/compose/compose.yaml"
	var compose struct{ Services map[string]any }
	text, err := os.ReadFile(filepath.Join(labtest.Root, file))
	if err == nil {
		err = yaml.Unmarshal(text, &compose)
	}
	if err != nil {
		return []string{err.Error()}
	}
	if compose.Services[words[1]] == nil {
		return []string{file + " has no service " + words[1]}
	}
	return c.simple(words[2:], inline)
}

// ciSteps checks the steps that are given to .ci/run or .ci/full. The names of some are a loop's.
func ciSteps(script string, steps []string) (all []string) {
	text, err := os.ReadFile(filepath.Join(labtest.Root, script))
	if err != nil {
		return []string{err.Error()}
	}
	for _, step := range steps {
		if !bytes.Contains(text, []byte("\nstep "+step+" ")) && placeholder.FindString(step) == "" {
			all = append(all, script+" has no step "+step)
		}
	}
	return all
}

// goLine checks the words after "go".
func (c *commandChecker) goLine(words []string, inline bool) (all []string) {
	if len(words) == 0 {
		return nil
	}
	var names []string
	for i, word := range words[1:] {
		if !strings.HasPrefix(word, "./") && (word != "." || c.folder == "") { // else the reader's own
			continue
		}
		folder := filepath.Join(c.folder, strings.TrimSuffix(word, "..."))
		if sources, _ := filepath.Glob(filepath.Join(labtest.Root, folder, "*.go")); len(sources) == 0 && !holdsPackages(folder, word) {
			all = append(all, "there is no package "+word)
			continue
		}
		names = append(names, word)
		if words[0] == "run" {
			return append(all, c.goRun(folder, words[i+2:], inline)...)
		}
	}
	if words[0] == "test" && len(all) == 0 {
		all = c.goTest(names, words[1:])
	}
	return all
}

// holdsPackages reports whether there are packages below the folder of a pattern such as ./cmd/...
func holdsPackages(folder, pattern string) bool {
	below, _ := filepath.Glob(filepath.Join(labtest.Root, folder, "*", "*.go"))
	return strings.HasSuffix(pattern, "...") && len(below) > 0
}

// goRun checks the arguments of a program that is run from its source.
func (c *commandChecker) goRun(folder string, words []string, inline bool) []string {
	if name := filepath.Base(folder); c.programs[name] != nil {
		return c.program(name, c.programs[name], words, inline)
	}
	sources, _ := filepath.Glob(filepath.Join(labtest.Root, folder, "*.go"))
	known := flagsIn(sources)
	for _, word := range words {
		if _, ok := known[strings.TrimLeft(word, "-")]; word[0] == '-' && !ok {
			return []string{folder + ": unknown flag " + word}
		}
	}
	return nil
}

// testFlags are those of go test in the pages, and whether they take a value.
var testFlags = map[string]bool{"run": true, "p": true, "count": true, "v": false, "race": false, "tags": true}

// goTest checks the flags of go test: patterns must match a test, and other flags be the package's.
func (c *commandChecker) goTest(packages, words []string) (all []string) {
	for i, word := range words {
		name, isFlag := strings.CutPrefix(word, "-")
		name, _, _ = strings.Cut(name, "=")
		if _, known := testFlags[name]; !isFlag || known && name != "run" {
			continue
		}
		what := strings.Join(packages, " ")
		var text []byte
		for _, p := range packages {
			text = append(text, c.testsOf(p)...)
		}
		if name != "run" {
			kit, _ := os.ReadFile(filepath.Join(labtest.Root, "internal/testkit/files.go")) // the flag of all tests that compare with files
			if text = append(text, kit...); !bytes.Contains(text, []byte(`("`+name+`", `)) {
				all = append(all, fmt.Sprintf("no test of %s has the flag -%s", what, name))
			}
			continue
		}
		if i+1 == len(words) {
			return append(all, "-run needs a value")
		}
		pattern, err := regexp.Compile(words[i+1])
		if err != nil {
			return append(all, err.Error())
		}
		if !slices.ContainsFunc(testFunction.FindAllSubmatch(text, -1), func(m [][]byte) bool { return pattern.Match(m[1]) }) {
			all = append(all, fmt.Sprintf("no test of %s matches -run %s", what, words[i+1]))
		}
	}
	return all
}

var testFunction = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark|Example)\w*)\(`)

// testsOf returns the text of the tests of a package, or of those below it.
func (c *commandChecker) testsOf(pattern string) []byte {
	if text, ok := c.tests[pattern]; ok {
		return text
	}
	folder, deep := strings.CutSuffix(filepath.Join(labtest.Root, pattern), "...")
	var text []byte
	filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error { // what cannot be read has no test
		switch {
		case err != nil:
		case d.IsDir() && path != filepath.Clean(folder) && !deep:
			return fs.SkipDir
		case strings.HasSuffix(path, "_test.go"):
			file, _ := os.ReadFile(path)
			text = append(text, file...)
		}
		return nil
	})
	c.tests[pattern] = text
	return text
}
