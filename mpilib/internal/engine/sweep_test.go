package engine

import "github.com/isthmus-grid/isthmus/internal/testload"

// sweep returns how much of something a test is to do: all of it, where exhaustive tests are wanted.
func sweep(few, all int) int {
	if testload.Full() {
		return all
	}
	return few
}
