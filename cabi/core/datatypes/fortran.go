package datatypes

import "sync"

// undefined is MPI_UNDEFINED.
const undefined = int32(-32766)

// Classes of types.
const (
	ClassInteger = int32(192)
	ClassReal    = int32(193)
	ClassComplex = int32(194)
)

// matching has the types of Fortran with a size, by class and size.
var matching = map[[2]int32]string{
	{ClassInteger, 1}: "MPI_INTEGER1", {ClassInteger, 2}: "MPI_INTEGER2", {ClassInteger, 4}: "MPI_INTEGER4", {ClassInteger, 8}: "MPI_INTEGER8",
	{ClassInteger, 16}: "MPI_INTEGER16", {ClassReal, 16}: "MPI_REAL16", {ClassComplex, 32}: "MPI_COMPLEX32",
	{ClassReal, 4}: "MPI_REAL4", {ClassReal, 8}: "MPI_REAL8",
	{ClassComplex, 8}: "MPI_COMPLEX8", {ClassComplex, 16}: "MPI_COMPLEX16",
}

// Match returns the predefined type of a class and a size (MPI-5.0, section 19.1.9).
func Match(class, size int32) (handle uintptr, ok bool) {
	name, ok := matching[[2]int32{class, size}]
	return Named(name), ok
}

// pairs are the named types of a value and an index (MPI-5.0, section 6.9.4).
var pairs = map[[2]string]string{
	{"MPI_FLOAT", "MPI_INT"}: "MPI_FLOAT_INT", {"MPI_DOUBLE", "MPI_INT"}: "MPI_DOUBLE_INT", {"MPI_LONG", "MPI_INT"}: "MPI_LONG_INT",
	{"MPI_INT", "MPI_INT"}: "MPI_2INT", {"MPI_SHORT", "MPI_INT"}: "MPI_SHORT_INT", {"MPI_LONG_DOUBLE", "MPI_INT"}: "MPI_LONG_DOUBLE_INT",
	{"MPI_REAL", "MPI_REAL"}: "MPI_2REAL", {"MPI_DOUBLE_PRECISION", "MPI_DOUBLE_PRECISION"}: "MPI_2DOUBLE_PRECISION", {"MPI_INTEGER", "MPI_INTEGER"}: "MPI_2INTEGER",
}

// PairOf returns the predefined type of a value and an index, of these types, and whether there is one.
func PairOf(value, index *Type) (handle uintptr, ok bool) {
	for parts, name := range pairs {
		if Named(parts[0]) == value.Handle && Named(parts[1]) == index.Handle {
			handle = Named(name)
			_, ok = Get(handle)
		}
	}
	return handle, ok
}

// Precise is how a program asks for a type of Fortran's: by decimal digits P and the exponents' range R, of which one may be
// MPI_UNDEFINED. The answer is a predefined type without a name, the same one for the same question (MPI-5.0, section 19.1.9).
type Precise struct {
	Combiner string
	P, R     int32 // of an integer only R
}

// The combiners of such types.
const (
	PreciseReal    = "MPI_COMBINER_F90_REAL"
	PreciseComplex = "MPI_COMBINER_F90_COMPLEX"
	PreciseInteger = "MPI_COMBINER_F90_INTEGER"
)

// kinds are the types that there are, with what they hold, the smallest first.
var kinds = map[string][]struct {
	p, r int32
	name string
}{
	PreciseReal:    {{6, 37, "MPI_REAL4"}, {15, 307, "MPI_REAL8"}, {18, 4931, "MPI_LONG_DOUBLE"}, {33, 4931, "MPI_REAL16"}},
	PreciseComplex: {{6, 37, "MPI_COMPLEX8"}, {15, 307, "MPI_COMPLEX16"}, {18, 4931, "MPI_C_LONG_DOUBLE_COMPLEX"}, {33, 4931, "MPI_COMPLEX32"}},
	PreciseInteger: {{0, 2, "MPI_INTEGER1"}, {0, 4, "MPI_INTEGER2"}, {0, 9, "MPI_INTEGER4"}, {0, 18, "MPI_INTEGER8"}, {0, 38, "MPI_INTEGER16"}},
}

// integers are the arguments of the call.
func (a Precise) integers() []int {
	if a.Combiner == PreciseInteger {
		return []int{int(a.R)}
	}
	return []int{int(a.P), int(a.R)}
}

// like returns the predefined type that a's is like.
func (a Precise) like() (*Type, bool) {
	asks := a.P != undefined || a.R != undefined
	for _, k := range kinds[a.Combiner] {
		if asks && a.P <= k.p && a.R <= k.r && (a.P >= 0 || a.P == undefined) && (a.R >= 0 || a.R == undefined) {
			return Get(Named(k.name))
		}
	}
	return nil, false
}

// preciseTypes are the types that were asked for.
var preciseTypes = struct {
	sync.Mutex
	handles map[Precise]uintptr
}{handles: map[Precise]uintptr{}}

// Find returns the handle of a's type, and whether there is one.
func (a Precise) Find() (handle uintptr, ok bool) {
	like, ok := a.like()
	if !ok {
		return 0, false
	}
	preciseTypes.Lock()
	defer preciseTypes.Unlock()
	if handle, ok = preciseTypes.handles[a]; !ok {
		d := describe(0, "", like.Datatype)
		d.Reduce, d.asked = like.Reduce, &a
		d.Handle = types.Add(d)
		preciseTypes.handles[a] = d.Handle
		handle = d.Handle
	}
	return handle, true
}
