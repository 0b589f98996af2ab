//go:build system

package link

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/bench"
	"github.com/isthmus-grid/isthmus/lab"
)

// TestMain plays the ends, and puts the tests into namespaces of their own.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "part" {
		if err := Part(context.Background(), os.Args[2], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	lab.Main()
	os.Exit(m.Run())
}

// brief runs with few messages and returns the rows and what people were told.
func brief(t *testing.T, only, cc string) (rows []bench.Row, told string) {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	var out, err bytes.Buffer
	o := Options{Self: []string{"/proc/self/exe", "part"}, Repeat: 1, Scale: 0.005, CC: cc, JSON: true, Err: &err}
	if only != "" {
		o.Only = regexp.MustCompile(only)
	}
	if err := Run(t.Context(), &out, o); err != nil {
		t.Fatal(err)
	}
	rows, broken := bench.Read("rows", &out)
	if broken != nil {
		t.Fatal(broken)
	}
	if left, _ := filepath.Glob(os.Getenv("TMPDIR") + "/*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	return rows, err.String()
}

// A short run goes through every scenario, figure and implementation.
func TestRun(t *testing.T) {
	rows, _ := brief(t, "", "")
	want := 0
	for i := range scenarios {
		each := len(Transports) + 1
		if (implementation{name: nameCSpinning}).runsIn(&scenarios[i]) {
			each++
		}
		want += each * len(scenarios[i].figures)
	}
	seen := make(map[string]bool)
	for _, row := range rows {
		if row.Bench != "link" || row.Value <= 0 || row.Against != "" && row.Ratio <= 0 || row.Params["congestion"] == "" {
			t.Errorf("%+v", row)
		}
		seen[fmt.Sprint(row.Figure, row.Params["scenario"], row.Params["size"], row.Params["implementation"])] = true
	}
	if len(seen) != want || len(rows) != want {
		t.Errorf("%d rows, %d different, want %d", len(rows), len(seen), want)
	}
}

func TestWithoutCompiler(t *testing.T) {
	rows, told := brief(t, "one-cpu/half_round_trip/1/", "/no/such/cc")
	if !strings.Contains(told, "no C compiler") {
		t.Errorf("told %q", told)
	}
	if len(rows) != len(Transports) {
		t.Errorf("%d rows", len(rows))
	}
	for _, row := range rows {
		if against := row.Params["implementation"] != namePlain; against != (row.Against == namePlain) {
			t.Errorf("%+v", row)
		}
	}
}

// A row that is asked for is compared with one that is not.
func TestOnly(t *testing.T) {
	rows, _ := brief(t, "^unlimited/bandwidth/65536/spin$", "")
	if len(rows) != 1 || rows[0].Params["implementation"] != nameSpin || rows[0].Against != nameCBlocking || rows[0].Ratio <= 0 {
		t.Errorf("%+v", rows)
	}
	err := Run(t.Context(), new(bytes.Buffer), Options{
		Self: []string{"/proc/self/exe", "part"}, Only: regexp.MustCompile("nothing"), Err: new(bytes.Buffer),
	})
	if err == nil || !strings.Contains(err.Error(), "no row matches") {
		t.Error(err)
	}
}

// An end that cannot start is an error that names it, and no hang.
func TestBrokenEnd(t *testing.T) {
	err := Run(t.Context(), new(bytes.Buffer), Options{
		Self: []string{"/bin/false"}, CC: "/no/such/cc", Err: new(bytes.Buffer),
	})
	if err == nil || !strings.Contains(err.Error(), "/bin/false") {
		t.Error(err)
	}
}
