package api

import (
	_ "embed"
	"strings"
)

// Extra is a function that the standard's ABI does not have, and another one has.
type Extra struct {
	Function        // without a result it is missing: only its name is known
	Same     string // the function that it is another name of; empty: none
}

//go:embed extra.txt
var extra string

// Extras returns the functions that MPICH's ABI has beside those of Functions, MPI_Status_c2f and MPI_Status_f2c excepted: they know the
// layout of a status, and nothing else.
func Extras() []Extra {
	var all []Extra
	for line := range strings.Lines(extra) {
		switch fields := strings.Fields(line); {
		case fields[0][0] == '#':
		case len(fields) == 1:
			all = append(all, Extra{Function: Function{Name: fields[0]}})
		case fields[1] == "=":
			all = append(all, Extra{Function: Function{Name: fields[0]}, Same: fields[2]})
		default:
			f, err := parse(line)
			if err != nil {
				panic("cabi/api: extra.txt: " + err.Error()) // the table is part of the program
			}
			all = append(all, Extra{Function: f})
		}
	}
	return all
}

// HasProfiling reports whether f has a second name, which begins with P (MPI-5.0, section 15.2).
func (f Function) HasProfiling() bool { return !strings.HasPrefix(f.Name, "MPII_") }
