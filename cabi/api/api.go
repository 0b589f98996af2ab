// Package api is the table of MPI's functions, constants and callbacks as the standard's C ABI has
// them (MPI-5.0, chapter 20): what the generator makes C from. It is pure data; what a function
// does, and whether the project has it, is package core's.
package api

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
)

// Function is a function of the ABI.
type Function struct {
	Name    string // "MPI_Send"
	Chapter string // of the standard
	Stage   int    // in which it is carried out (docs/decisions/0054-c-programs.md)
	Result  Kind
	Params  []Param
}

// Param is a parameter of a function.
type Param struct {
	Name string
	Kind Kind
}

//go:embed api.txt
var table string

// Functions returns the table, sorted by name. The caller owns the result.
func Functions() []Function {
	var all []Function
	for line := range strings.Lines(table) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		f, err := parse(line)
		if err != nil {
			panic("cabi/api: api.txt: " + err.Error()) // the table is part of the program
		}
		all = append(all, f)
	}
	return all
}

// parse reads a line: name, chapter, stage, kind of the result, parameters as name:kind.
func parse(line string) (Function, error) {
	fields := strings.Fields(line)
	if len(fields) < 4 {
		return Function{}, fmt.Errorf("%q has %d fields, not 4 and more", line, len(fields))
	}
	stage, err := strconv.Atoi(fields[2])
	if err != nil {
		return Function{}, fmt.Errorf("%s: stage: %w", fields[0], err)
	}
	f := Function{Name: fields[0], Chapter: fields[1], Stage: stage, Result: Kind{Base: fields[3]}}
	for _, field := range fields[4:] {
		name, kind, ok := strings.Cut(field, ":")
		if !ok {
			return Function{}, fmt.Errorf("%s: parameter %q has no kind", f.Name, field)
		}
		f.Params = append(f.Params, Param{name, parseKind(kind)})
	}
	return f, nil
}

// Large reports whether f is the variant with counts of 64 bits (MPI-5.0, section 2.5.8).
func (f Function) Large() bool { return strings.HasSuffix(f.Name, "_c") }

// Prototype returns f's declaration in C, with another name in place of its own unless that is
// empty, and without a semicolon.
func (f Function) Prototype(name string) string {
	if name == "" {
		name = f.Name
	}
	params := make([]string, len(f.Params))
	for i, p := range f.Params {
		params[i] = p.Declaration(f.Large())
	}
	if len(params) == 0 {
		params = []string{"void"}
	}
	return f.Result.CType(f.Large()) + " " + name + "(" + strings.Join(params, ", ") + ")"
}
