package runjob

import (
	"strings"
	"testing"
)

// Open MPI's parameters are taken out where mpirun would take them, and nowhere else.
func TestWithoutMCA(t *testing.T) {
	for _, c := range [][3]string{ // words, the rest, names
		{"isthmus run --mca btl tcp,self -n 2 ./p --mca a b", "isthmus run -n 2 ./p --mca a b", "btl"},
		{"isthmus run -np 2 --survive -mca btl ^openib --hosts=a:1 --gmca pml ob1 ./p", "isthmus run -np 2 --survive --hosts=a:1 ./p", "btl pml"},
		{"isthmus run -n 2 -- --mca a b", "isthmus run -n 2 -- --mca a b", ""},
		{"isthmus run --label --mca a b", "isthmus run --label --mca a b", ""}, // a value
		{"isthmus run --mca a b", "isthmus run", "a"},
		{"isthmus run --mca a", "isthmus run --mca a", ""},
		{"isthmus run --unknown --mca a b ./p", "isthmus run --unknown ./p", "a"},
		{"isthmus run -n", "isthmus run -n", ""},
		{"isthmus cc --mca a b", "isthmus cc --mca a b", ""},
		{"isthmus", "isthmus", ""},
	} {
		rest, names := WithoutMCA(strings.Fields(c[0]))
		if rest, names := strings.Join(rest, " "), strings.Join(names, " "); rest != c[1] || names != c[2] {
			t.Errorf("%s: %q and %q, want %q and %q", c[0], rest, names, c[1], c[2])
		}
	}
}
