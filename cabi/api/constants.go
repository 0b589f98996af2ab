package api

import (
	_ "embed"
	"strconv"
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

//go:embed openmpi.tsv
var openMPI string

// OpenMPIABI is Open MPI's ABI, version 4.1.
type OpenMPIABI struct {
	Values    map[string]string // of constants; of handles, the objects whose addresses they are
	Fortran   map[string]string // the numbers that handles have in Fortran
	Objects   []Object
	Functions []string // those of MPI, which all have a PMPI name too
}

// Object is data that a library exports: programs may have a copy of it, of just this size.
type Object struct {
	Name string
	Size int
}

// OpenMPI returns what openmpi.tsv has. A constant without a value does not exist there.
func OpenMPI() OpenMPIABI {
	abi := OpenMPIABI{Values: map[string]string{}, Fortran: map[string]string{}}
	for line := range strings.Lines(openMPI) {
		switch fields := strings.Fields(line); fields[0] {
		case "constant", "handle":
			abi.Values[fields[1]] = fields[2]
		case "fortran":
			abi.Fortran[fields[1]] = fields[2]
		case "object":
			size, err := strconv.Atoi(fields[2])
			if err != nil {
				panic("cabi/api: openmpi.tsv: " + err.Error()) // the table is part of the program
			}
			abi.Objects = append(abi.Objects, Object{fields[1], size})
		case "function":
			abi.Functions = append(abi.Functions, fields[1])
		}
	}
	return abi
}
