package api

import (
	_ "embed"
	"slices"
	"strings"
	"testing"
)

// standard has the prototypes of the standard's header as mpi-forum/mpi-abi-stubs publishes it.
//
//go:embed testdata/functions.tsv
var standard string

// The table's kinds give the standard's prototypes, all of them.
func TestPrototypes(t *testing.T) {
	ours := map[string]Function{}
	for _, f := range Functions() {
		if _, twice := ours[f.Name]; twice {
			t.Errorf("the table has %s twice", f.Name)
		}
		ours[f.Name] = f
	}
	for _, row := range rows(standard) {
		f, ok := ours[row[0]]
		if !ok {
			t.Errorf("the table lacks %s", row[0])
			continue
		}
		delete(ours, row[0])
		params := strings.ReplaceAll(row[2], ";", ",")
		if params == "" {
			params = "void"
		}
		if got, want := f.Prototype(""), row[1]+" "+row[0]+"("+params+")"; got != want {
			t.Errorf("the table gives\n%s\nthe standard has\n%s", got, want)
		}
	}
	for name := range ours {
		t.Errorf("the standard has no %s", name)
	}
}

// The table has as many functions of each sort as the standard.
func TestCounts(t *testing.T) {
	sorts := map[string]int{}
	for _, f := range Functions() {
		sorts["all"]++
		if f.Large() {
			sorts["large"]++
		}
		if strings.HasPrefix(f.Name, "MPI_T_") {
			sorts["tools"]++
		}
		if f.Stage < 1 || f.Stage > 6 {
			t.Errorf("%s has stage %d", f.Name, f.Stage)
		}
	}
	for sort, want := range map[string]int{"all": 664, "large": 161, "tools": 51} {
		if sorts[sort] != want {
			t.Errorf("%s: %d, want %d", sort, sorts[sort], want)
		}
	}
	if !slices.IsSortedFunc(Functions(), func(a, b Function) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("the table is not sorted")
	}
}

// Each large function has a variant with counts of the size of int, whose parameters have the same
// names and meanings: the two share what they call.
func TestLargeFunctions(t *testing.T) {
	byName := map[string]Function{}
	for _, f := range Functions() {
		byName[f.Name] = f
	}
	for name, f := range byName {
		if !f.Large() {
			continue
		}
		small, ok := byName[strings.TrimSuffix(name, "_c")]
		if !ok {
			t.Errorf("%s has no variant without _c", name)
		}
		if small.Stage != f.Stage {
			t.Errorf("%s has stage %d, and %s %d", name, f.Stage, small.Name, small.Stage)
		}
	}
}

// A line that is wrong is told, and not skipped.
func TestParse(t *testing.T) {
	for _, line := range []string{"MPI_Send point-to-point 1", "MPI_Send point-to-point x error", "MPI_Send point-to-point 1 error buf"} {
		if f, err := parse(line); err == nil {
			t.Errorf("%q is %v", line, f)
		}
	}
}

// MPICH's values are of constants that the standard has, and no two handles of a kind are the same.
func TestMPICH(t *testing.T) {
	types := map[string]string{}
	for _, c := range Constants() {
		types[c.Name] = c.Type
	}
	seen := map[string]string{}
	values := MPICH()
	for name, value := range values {
		kind, ok := types[name]
		if !ok {
			t.Errorf("the standard has no %s", name)
		}
		if kind == "" || kind == "int" || value == values["MPI_DATATYPE_NULL"] {
			continue
		}
		if other, twice := seen[kind+value]; twice {
			t.Errorf("%s and %s are both %s", name, other, value)
		}
		seen[kind+value] = name
	}
	if len(values) < 200 {
		t.Errorf("%d constants", len(values))
	}
}
