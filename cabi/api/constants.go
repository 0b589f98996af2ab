package api

import (
	_ "embed"
	"strings"
)

// Constant is a constant or a type of the ABI, with its value as C text.
type Constant struct {
	Name  string
	Type  string // of a handle, "MPI_Comm"; "int", or empty where Value says it all; "C type"
	Value string
}

// Callback is a type of functions that programs hand in.
type Callback struct {
	Name   string
	Result string // C text, as Params
	Params string
}

//go:embed constants.tsv
var constants string

//go:embed callbacks.tsv
var callbacks string

// Constants returns the constants in the order of the standard's tables.
func Constants() []Constant {
	var all []Constant
	for _, row := range rows(constants) {
		all = append(all, Constant{row[0], row[1], row[2]})
	}
	return all
}

// Callbacks returns the types of callbacks.
func Callbacks() []Callback {
	var all []Callback
	for _, row := range rows(callbacks) {
		all = append(all, Callback{row[0], row[1], row[2]})
	}
	return all
}

// rows splits lines of three fields.
func rows(text string) [][]string {
	var all [][]string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") {
			all = append(all, strings.SplitN(strings.TrimRight(line, "\n"), "\t", 3))
		}
	}
	return all
}

//go:embed mpich.tsv
var mpich string

// MPICH returns the values that constants have in MPICH's ABI, by name: handles, and numbers that
// differ. A constant without one does not exist there.
func MPICH() map[string]string {
	values := map[string]string{}
	for line := range strings.Lines(mpich) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "\t"); ok && name[0] != '#' {
			values[name] = value
		}
	}
	return values
}
