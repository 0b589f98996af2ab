package datatype

import (
	"fmt"
	"slices"
)

// A Combiner says which constructor made a type (MPI-4.1, 5.1.13).
type Combiner uint8

// The combiners.
const (
	CombinerNamed Combiner = iota
	CombinerDup
	CombinerContiguous
	CombinerVector
	CombinerHvector
	CombinerIndexed
	CombinerHindexed
	CombinerIndexedBlock
	CombinerHindexedBlock
	CombinerStruct
	CombinerSubarray
	CombinerDarray
	CombinerResized
)

// String returns the standard's name.
func (c Combiner) String() string {
	names := [...]string{"NAMED", "DUP", "CONTIGUOUS", "VECTOR", "HVECTOR", "INDEXED", "HINDEXED", "INDEXED_BLOCK",
		"HINDEXED_BLOCK", "STRUCT", "SUBARRAY", "DARRAY", "RESIZED"}
	if int(c) < len(names) {
		return "MPI_COMBINER_" + names[c]
	}
	return fmt.Sprintf("combiner %d", uint8(c))
}

// Contents are the arguments of the constructor that made a type, in the
// order of the standard's table for MPI_Type_get_contents: numbers that are
// int there, then those that are MPI_Aint, then types. Array lengths come
// first, as in C, although the Go constructors take them from the slices.
type Contents struct {
	Combiner  Combiner
	Integers  []int64
	Addresses []int64
	Types     []*Type
}

// Envelope returns the constructor that made t and how many arguments of each
// sort it had (MPI_Type_get_envelope). A named type has none.
func (t *Type) Envelope() (combiner Combiner, integers, addresses, types int) {
	c := &t.contents
	return c.Combiner, len(c.Integers), len(c.Addresses), len(c.Types)
}

// Contents returns copies of the arguments of the constructor that made t (MPI_Type_get_contents).
// It returns an error for a named type.
func (t *Type) Contents() (Contents, error) {
	c := t.contents
	if c.Combiner == CombinerNamed {
		return Contents{}, fmt.Errorf("datatype: Contents: %v is a named type, which no constructor made: %w", t, ErrArgument)
	}
	return Contents{c.Combiner, slices.Clone(c.Integers), slices.Clone(c.Addresses), slices.Clone(c.Types)}, nil
}
