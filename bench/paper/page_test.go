package paper

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/bench"
	"github.com/isthmus-grid/isthmus/internal/testkit"
)

// page has tables of claims, and lastRun what one run printed with --json. Of rows of one claim the last counts, so
// that an experiment can be run again and its rows added.
const (
	page    = "../../docs/papers.md"
	lastRun = "testdata/run.json"
)

// aTable matches a table of the page, with the lines around it that name its experiments.
var aTable = regexp.MustCompile(`(?ms)^<!-- claims of ([^\n]*) -->\n.*?^<!-- end of claims -->$`)

// The page has every experiment in one of its tables, which follow from the table here and from the last run.
func TestPage(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := bench.ReadFiles([]string{lastRun})
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]int{}
	want := aTable.ReplaceAllStringFunc(string(text), func(old string) string {
		names := aTable.FindStringSubmatch(old)[1]
		b := fmt.Sprintf("<!-- claims of %s -->\n| | claim | there | here | command |\n|---|---|---|---|---|\n", names)
		for name := range strings.FieldsSeq(names) {
			there[name]++
			b += lines(name, rows)
		}
		return b + "<!-- end of claims -->"
	})
	for _, name := range Names() {
		if there[name] != 1 {
			t.Errorf("%s is in %d tables of %s, want 1", name, there[name], page)
		}
	}
	if len(there) != len(table) {
		t.Errorf("%s has tables of %v", page, there)
	}
	switch {
	case want == string(text):
	case testkit.Updating():
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s is not what the table of claims and %s say; write it anew with go test ./bench/paper -update", page, lastRun)
	}
}

// lines returns the lines of an experiment, of which the first names it. Claims about different iterations are one line.
func lines(name string, rows []bench.Row) (text string) {
	e := table[slices.IndexFunc(table, func(e experiment) bool { return e.name == name })]
	var said []string // without the iterations
	here := map[string]string{}
	first := map[string]claim{}
	for _, c := range e.claims {
		iterations, what, found := strings.Cut(c.text, " an iteration on a core: ")
		if !found {
			iterations, what = "", c.text
		}
		if !slices.Contains(said, what) {
			said, first[what] = append(said, what), c
		}
		for _, r := range slices.Backward(rows) {
			if r.Figure != name || r.Params["claim"] != c.text {
				continue
			}
			if found {
				here[what] += iterations + ": "
			}
			here[what] += shown(e.row(c, r.Value), here[what])
			break
		}
	}
	title, command := e.item, fmt.Sprintf("`isthmus-lab bench paper --only %s`", name)
	if e.size != "" {
		title += "; here: " + e.size
	}
	for _, what := range said {
		text += fmt.Sprintf("| %s | %s | %s | %s | %s |\n", title, what, first[what].theirs, strings.TrimSuffix(here[what], "; "), command)
		title, command = "", ""
	}
	return text
}

// shown returns a row as text, with a reason that was not said before.
func shown(r bench.Row, before string) string {
	text := fmt.Sprintf("%.4g %s", r.Value, r.Unit)
	if *r.Met {
		return text + "; "
	}
	why := r.Params["why"].(string)
	if strings.Contains(before, why) {
		return text + ", does not hold; "
	}
	return text + ", does not hold: " + why + "; "
}

// A claim has its verdict by the bounds of today, and a reason once.
func TestPageLines(t *testing.T) {
	e := table[slices.IndexFunc(table, func(e experiment) bool { return e.name == "jace-table-2" })]
	c := e.claims[0]
	rows := []bench.Row{
		{Figure: e.name, Value: 7, Params: map[string]any{"claim": c.text}}, // of an earlier run
		{Figure: e.name, Value: -38, Params: map[string]any{"claim": c.text}},
		{Figure: e.name, Value: -2, Params: map[string]any{"claim": strings.Replace(c.text, at(coreSeconds[0]), at(coreSeconds[1]), 1)}},
	}
	want := "| table 2; here: " + e.size + " | gain of SMa | 27 % | 1 s: -38 %, does not hold: " + c.why + "; 0.01 s: -2 %, does not hold | `isthmus-lab bench paper --only jace-table-2` |\n|  | gain of AIAC-QM | 33 % |  |  |\n"
	if got := lines(e.name, rows); !strings.HasPrefix(got, want) {
		t.Errorf("wrote\n%swant\n%s", got, want)
	}
}
