package core

import "sync"

// typeNamed returns the handle of a predefined type by its name.
func typeNamed(name string) uintptr { return uintptr(constantValues()[name]) }

// pairs are the named types of a value and an index (MPI-5.0, section 6.9.4).
var pairs = map[[2]string]string{
	{"MPI_FLOAT", "MPI_INT"}: "MPI_FLOAT_INT", {"MPI_DOUBLE", "MPI_INT"}: "MPI_DOUBLE_INT", {"MPI_LONG", "MPI_INT"}: "MPI_LONG_INT",
	{"MPI_INT", "MPI_INT"}: "MPI_2INT", {"MPI_SHORT", "MPI_INT"}: "MPI_SHORT_INT", {"MPI_LONG_DOUBLE", "MPI_INT"}: "MPI_LONG_DOUBLE_INT",
	{"MPI_REAL", "MPI_REAL"}: "MPI_2REAL", {"MPI_DOUBLE_PRECISION", "MPI_DOUBLE_PRECISION"}: "MPI_2DOUBLE_PRECISION", {"MPI_INTEGER", "MPI_INTEGER"}: "MPI_2INTEGER",
}

// TypeGetValueIndex returns the predefined type of a value and an index, MPI_DATATYPE_NULL if there is none; those without
// a name are not there.
func TypeGetValueIndex(valueType, indexType, pairType uintptr) int32 {
	for _, handle := range []uintptr{valueType, indexType} {
		if _, err := typeOf(handle); err != nil {
			return onWorld("MPI_Type_get_value_index", err)
		}
	}
	store(pairType, datatypeNull)
	for parts, name := range pairs {
		if typeNamed(parts[0]) != valueType || typeNamed(parts[1]) != indexType {
			continue
		}
		if _, err := typeOf(typeNamed(name)); err == nil {
			store(pairType, typeNamed(name))
		}
	}
	return success
}

// precise is how a program asks for a type of Fortran's: by decimal digits p and the exponents' range r, of which one may be
// MPI_UNDEFINED. The answer is a predefined type without a name, the same one for the same question (MPI-5.0, section 19.1.9).
type precise struct {
	combiner string
	p, r     int32 // of an integer only r
}

// The combiners of such types.
const (
	preciseReal    = "MPI_COMBINER_F90_REAL"
	preciseComplex = "MPI_COMBINER_F90_COMPLEX"
	preciseInteger = "MPI_COMBINER_F90_INTEGER"
)

// kinds are the types that there are, with what they hold, the smallest first.
var kinds = map[string][]struct {
	p, r int32
	name string
}{
	preciseReal:    {{6, 37, "MPI_REAL4"}, {15, 307, "MPI_REAL8"}, {18, 4931, "MPI_LONG_DOUBLE"}, {33, 4931, "MPI_REAL16"}},
	preciseComplex: {{6, 37, "MPI_COMPLEX8"}, {15, 307, "MPI_COMPLEX16"}, {18, 4931, "MPI_C_LONG_DOUBLE_COMPLEX"}, {33, 4931, "MPI_COMPLEX32"}},
	preciseInteger: {{0, 2, "MPI_INTEGER1"}, {0, 4, "MPI_INTEGER2"}, {0, 9, "MPI_INTEGER4"}, {0, 18, "MPI_INTEGER8"}, {0, 38, "MPI_INTEGER16"}},
}

// integers are the arguments of the call.
func (a precise) integers() []int32 {
	if a.combiner == preciseInteger {
		return []int32{a.r}
	}
	return []int32{a.p, a.r}
}

// like returns the predefined type that a's is like.
func (a precise) like() (*datatype, error) {
	asks := a.p != undefined || a.r != undefined
	for _, k := range kinds[a.combiner] {
		if asks && a.p <= k.p && a.r <= k.r && (a.p >= 0 || a.p == undefined) && (a.r >= 0 || a.r == undefined) {
			return typeOf(typeNamed(k.name))
		}
	}
	return nil, failure(errArg, "there is no type with %d digits and exponents up to %d", a.p, a.r)
}

// preciseTypes are the handles of the types that were asked for.
var preciseTypes = struct {
	sync.Mutex
	handles map[precise]uintptr
}{handles: map[precise]uintptr{}}

// create stores the handle of a's type.
func (a precise) create(call string, newtype uintptr) int32 {
	like, err := a.like()
	if err != nil {
		return onWorld(call, err)
	}
	preciseTypes.Lock()
	defer preciseTypes.Unlock()
	handle, ok := preciseTypes.handles[a]
	if !ok {
		d := describe(0, "", like.t)
		d.reduce, d.asked = like.reduce, &a
		handle = types.add(d)
		d.handle = handle
		preciseTypes.handles[a] = handle
	}
	store(newtype, handle)
	return success
}

// TypeCreateF90Real returns the type of reals with a precision.
func TypeCreateF90Real(p, r int32, newtype uintptr) int32 {
	return precise{preciseReal, p, r}.create("MPI_Type_create_f90_real", newtype)
}

// TypeCreateF90Complex returns the type of complex numbers with a precision.
func TypeCreateF90Complex(p, r int32, newtype uintptr) int32 {
	return precise{preciseComplex, p, r}.create("MPI_Type_create_f90_complex", newtype)
}

// TypeCreateF90Integer returns the type of integers with r decimal digits.
func TypeCreateF90Integer(r int32, newtype uintptr) int32 {
	return precise{preciseInteger, undefined, r}.create("MPI_Type_create_f90_integer", newtype)
}
