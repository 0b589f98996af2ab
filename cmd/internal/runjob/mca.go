package runjob

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// WithoutMCA returns the words of a command line without Open MPI's parameters (--mca NAME VALUE) in front of the program of isthmus run, as
// scripts for mpirun have them, and the names of these. Flags of this program's have one value.
func WithoutMCA(words []string) (rest, names []string) {
	if len(words) < 2 || words[1] != "run" {
		return words, nil
	}
	flags := Command().Flags
	rest, words = slices.Clone(words[:2]), words[2:]
	for len(words) > 0 && len(words[0]) > 1 && words[0][0] == '-' && words[0] != "--" {
		name := strings.TrimLeft(words[0], "-")
		n := 1
		switch {
		case (name == "mca" || name == "gmca") && len(words) > 2:
			names = append(names, words[1])
			words = words[3:]
			continue
		case takesValue(flags, name):
			n = min(2, len(words))
		}
		rest, words = append(rest, words[:n]...), words[n:]
	}
	return append(rest, words...), names
}

// takesValue is whether the word after a flag is its value.
func takesValue(flags []cli.Flag, name string) bool {
	for _, f := range flags {
		if slices.Contains(f.Names(), name) {
			takes, ok := f.(cli.DocGenerationFlag)
			return ok && takes.TakesValue()
		}
	}
	return false
}
