// Package datatypes has what handles of datatypes name (MPI-5.0, chapter 5): the standard's types by their constants, those
// without a name that Fortran asks for, and the program's. What a type is, mpilib knows; this package knows how the ABI
// numbers types, and what C and Fortran ask about them. It reads no memory of the program's and makes no calls of MPI. Its
// state is the table of types, which is the process's.
package datatypes

import (
	"math"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/isthmus-grid/isthmus/cabi/api"
	"github.com/isthmus-grid/isthmus/cabi/core/attributes"
	"github.com/isthmus-grid/isthmus/cabi/core/handles"
	"github.com/isthmus-grid/isthmus/cabi/core/reductions"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// Type is what a handle of a datatype names.
type Type struct {
	Handle     uintptr
	Datatype   *mpilib.Datatype
	Extent     int                // from an element to the next
	Begin, End int                // where the bytes of one element lie
	Reduce     reductions.Reducer // of the standard's operations; nil if there is none
	Attributes attributes.Cache
	Large      bool // whether a constructor with counts of 64 bits made it

	name  atomic.Pointer[string] // nil: none
	from  []*Type                // what a constructor made it of, in the order of its arguments
	asked *Precise               // of a predefined type without a name: the arguments; otherwise nil
}

var types handles.Table[*Type]

// values has the values of the standard's constants, handles included, by name.
var values = sync.OnceValue(func() map[string]int32 {
	all := map[string]int32{}
	for _, c := range api.Constants() {
		if v, err := strconv.ParseInt(c.Value, 0, 32); err == nil {
			all[c.Name] = int32(v)
		}
	}
	return all
})

// standard makes the predefined types, at first use.
var standard = sync.OnceFunc(func() {
	for _, c := range api.Constants() {
		if c.Type != "MPI_Datatype" {
			continue
		}
		if t := predefined(c.Name); t != nil {
			types.Put(Named(c.Name), describe(Named(c.Name), c.Name, t))
		}
	}
})

// sized are Fortran's types with a size in their names, by the types that have the same form.
var sized = map[string]string{
	"MPI_INTEGER1": "MPI_INT8_T", "MPI_INTEGER2": "MPI_INT16_T", "MPI_INTEGER4": "MPI_INT32_T", "MPI_INTEGER8": "MPI_INT64_T",
	"MPI_LOGICAL1": "MPI_INT8_T", "MPI_LOGICAL2": "MPI_INT16_T", "MPI_LOGICAL4": "MPI_INT32_T", "MPI_LOGICAL8": "MPI_INT64_T",
	"MPI_REAL4": "MPI_FLOAT", "MPI_REAL8": "MPI_DOUBLE", "MPI_COMPLEX8": "MPI_C_FLOAT_COMPLEX", "MPI_COMPLEX16": "MPI_C_DOUBLE_COMPLEX",
}

// predefined returns a predefined type, nil if mpilib does not have it.
func predefined(name string) *mpilib.Datatype {
	if name == "MPI_PACKED" {
		return mpilib.Packed
	}
	if same, ok := sized[name]; ok {
		name = same
	}
	t, err := mpilib.TypeNamed(name)
	if err != nil {
		return nil
	}
	return t
}

// describe returns what calls need to know of a type; name is empty for the program's.
func describe(handle uintptr, name string, t *mpilib.Datatype) *Type {
	_, extent := t.Extent()
	begin, length := t.TrueExtent()
	d := &Type{Handle: handle, Datatype: t, Extent: extent, Begin: begin, End: begin + length}
	if name != "" {
		d.SetName(name)
	}
	if d.Reduce = reductions.ForType(name); d.Reduce == nil {
		d.Reduce = reductions.ForType(sized[name])
	}
	return d
}

// Get returns the datatype of a handle.
func Get(handle uintptr) (*Type, bool) {
	standard()
	return types.Get(handle)
}

// Named returns the handle of a predefined type by its name, also of one that is not here.
func Named(name string) uintptr { return uintptr(values()[name]) }

// Add gives a type of the program's a handle. from is what it was made of.
func Add(t *mpilib.Datatype, from ...*Type) *Type {
	d := describe(0, "", t)
	d.from = from
	d.Handle = types.Add(d)
	return d
}

// Remove makes the handle of a type of the program's invalid.
func (d *Type) Remove() { types.Remove(d.Handle) }

// IsPredefined reports whether d is the standard's, which programs do not free.
func (d *Type) IsPredefined() bool { return d.Handle < handles.First || d.asked != nil }

// Name returns the name of d, empty unless the standard or the program has given it one.
func (d *Type) Name() string {
	if name := d.name.Load(); name != nil {
		return *name
	}
	return ""
}

// SetName names d.
func (d *Type) SetName(name string) { d.name.Store(&name) }

// Span returns where the bytes of elements lie, of which there is at least one.
func (d *Type) Span(count int) (low, high int) {
	rest := (count - 1) * d.Extent // where the last element begins
	return min(d.Begin, rest+d.Begin), max(d.End, rest+d.End)
}

// Bytes returns the length of a message of count elements of the predefined types in d, and whether there is one. The
// number of elements grows with the length, so that the length can be searched for.
func (d *Type) Bytes(count int64) (int64, bool) {
	t, size := d.Datatype, int64(d.Datatype.Size())
	whole := mpilib.Status{Bytes: int(size)}.GetElements(t)
	if count <= 0 || whole <= 0 {
		return 0, count == 0
	}
	rounds := count / int64(whole)
	if rounds > math.MaxInt64/size-1 {
		return 0, false
	}
	for others := range size {
		if (mpilib.Status{Bytes: int(others)}).GetElements(t) == int(count%int64(whole)) {
			return rounds*size + others, true
		}
	}
	return 0, false
}
