package datatype

import "runtime"

// A class says how a basic element is converted to external32.
type class uint8

const (
	octets class = iota // copied as they are
	signed
	unsigned
	boolean // zero or not
	float
	longDouble // its format depends on the machine
	wide       // a number of 16 bytes in the order of the machine
)

// A kind identifies a basic element's type, as an index of kinds.
type kind uint8

// untyped is the kind of bytes whose type does not matter, in plans that only copy.
const untyped kind = 0

// kindInfo describes a basic element. A complex number has two parts.
type kindInfo struct {
	name     string
	class    class
	parts    int64
	size     int64 // in memory
	align    int64 // in memory
	external int64 // bytes in external32 (MPI-4.1, 14.5.2)
}

var kinds = []kindInfo{untyped: {name: "untyped", parts: 1, size: 1, align: 1, external: 1}}

// named returns a named type of one basic element and registers its kind. size and external are
// those of one part.
func named(name string, c class, parts, size, external int64) *Type {
	k := kind(len(kinds))
	kinds = append(kinds, kindInfo{name: name, class: c, parts: parts,
		size: parts * size, align: size, external: parts * external})
	t := &Type{
		name: name,
		size: parts * size, extent: parts * size, external: parts * external,
		bounds:   bounds{data: true, top: parts * size, align: size},
		sig:      kinds[k].signature(),
		shape:    basic(k),
		contents: Contents{Combiner: CombinerNamed},
	}
	t.Commit()
	return t
}

// longDoubleSize is the size of C's long double on the supported machines:
// x87's 80 bits or IEEE's 128, both in 16 bytes, or the same as double.
var longDoubleSize = map[bool]int64{false: 16, true: 8}[runtime.GOOS == "darwin" && runtime.GOARCH == "arm64"]

// The named types of C (MPI-4.1, 3.2.2) with the sizes of the 64-bit machines
// that Isthmus runs on.
var (
	Char                 = named("MPI_CHAR", octets, 1, 1, 1)
	SignedChar           = named("MPI_SIGNED_CHAR", signed, 1, 1, 1)
	UnsignedChar         = named("MPI_UNSIGNED_CHAR", unsigned, 1, 1, 1)
	Short                = named("MPI_SHORT", signed, 1, 2, 2)
	UnsignedShort        = named("MPI_UNSIGNED_SHORT", unsigned, 1, 2, 2)
	Int                  = named("MPI_INT", signed, 1, 4, 4)
	Unsigned             = named("MPI_UNSIGNED", unsigned, 1, 4, 4)
	Long                 = named("MPI_LONG", signed, 1, 8, 4)
	UnsignedLong         = named("MPI_UNSIGNED_LONG", unsigned, 1, 8, 4)
	LongLong             = named("MPI_LONG_LONG", signed, 1, 8, 8)
	UnsignedLongLong     = named("MPI_UNSIGNED_LONG_LONG", unsigned, 1, 8, 8)
	Float                = named("MPI_FLOAT", float, 1, 4, 4)
	Double               = named("MPI_DOUBLE", float, 1, 8, 8)
	LongDouble           = named("MPI_LONG_DOUBLE", longDouble, 1, longDoubleSize, 16)
	Wchar                = named("MPI_WCHAR", unsigned, 1, 4, 2)
	CBool                = named("MPI_C_BOOL", boolean, 1, 1, 1)
	Int8                 = named("MPI_INT8_T", signed, 1, 1, 1)
	Int16                = named("MPI_INT16_T", signed, 1, 2, 2)
	Int32                = named("MPI_INT32_T", signed, 1, 4, 4)
	Int64                = named("MPI_INT64_T", signed, 1, 8, 8)
	Uint8                = named("MPI_UINT8_T", unsigned, 1, 1, 1)
	Uint16               = named("MPI_UINT16_T", unsigned, 1, 2, 2)
	Uint32               = named("MPI_UINT32_T", unsigned, 1, 4, 4)
	Uint64               = named("MPI_UINT64_T", unsigned, 1, 8, 8)
	Aint                 = named("MPI_AINT", signed, 1, 8, 8)
	Offset               = named("MPI_OFFSET", signed, 1, 8, 8)
	Count                = named("MPI_COUNT", signed, 1, 8, 8)
	CFloatComplex        = named("MPI_C_FLOAT_COMPLEX", float, 2, 4, 4)
	CDoubleComplex       = named("MPI_C_DOUBLE_COMPLEX", float, 2, 8, 8)
	CLongDoubleComplex   = named("MPI_C_LONG_DOUBLE_COMPLEX", longDouble, 2, longDoubleSize, 16)
	CxxBool              = named("MPI_CXX_BOOL", boolean, 1, 1, 1)
	CxxFloatComplex      = named("MPI_CXX_FLOAT_COMPLEX", float, 2, 4, 4)
	CxxDoubleComplex     = named("MPI_CXX_DOUBLE_COMPLEX", float, 2, 8, 8)
	CxxLongDoubleComplex = named("MPI_CXX_LONG_DOUBLE_COMPLEX", longDouble, 2, longDoubleSize, 16)
)

// Byte is uninterpreted and matches only itself; Packed is the output of MPI_Pack and matches
// everything (MPI-4.1, 3.3.1 and 5.2).
var (
	Byte   = named("MPI_BYTE", octets, 1, 1, 1)
	Packed = named(packedName, octets, 1, 1, 1)
)

// The named types of Fortran with their default kinds.
var (
	Integer         = named("MPI_INTEGER", signed, 1, 4, 4)
	Real            = named("MPI_REAL", float, 1, 4, 4)
	DoublePrecision = named("MPI_DOUBLE_PRECISION", float, 1, 8, 8)
	Complex         = named("MPI_COMPLEX", float, 2, 4, 4)
	DoubleComplex   = named("MPI_DOUBLE_COMPLEX", float, 2, 8, 8)
	Logical         = named("MPI_LOGICAL", boolean, 1, 4, 4)
	Character       = named("MPI_CHARACTER", octets, 1, 1, 1)
)

// The types of Fortran with a size that no other type has.
var (
	Integer16 = named("MPI_INTEGER16", wide, 1, 16, 16)
	Logical16 = named("MPI_LOGICAL16", wide, 1, 16, 16)
	Real16    = named("MPI_REAL16", wide, 1, 16, 16)
	Complex32 = named("MPI_COMPLEX32", wide, 2, 16, 16)
)

// The pairs of a value and an index for MINLOC and MAXLOC (MPI-4.1, 6.9.4).
// Each is named, but its type map is that of the C struct.
var (
	FloatInt           = pair("MPI_FLOAT_INT", Float, Int)
	DoubleInt          = pair("MPI_DOUBLE_INT", Double, Int)
	LongInt            = pair("MPI_LONG_INT", Long, Int)
	TwoInt             = pair("MPI_2INT", Int, Int)
	ShortInt           = pair("MPI_SHORT_INT", Short, Int)
	LongDoubleInt      = pair("MPI_LONG_DOUBLE_INT", LongDouble, Int)
	TwoReal            = pair("MPI_2REAL", Real, Real)
	TwoDoublePrecision = pair("MPI_2DOUBLE_PRECISION", DoublePrecision, DoublePrecision)
	TwoInteger         = pair("MPI_2INTEGER", Integer, Integer)
	namedTypesByName   = byName()
)

// pair returns a named type of a value and an index, laid out as in C.
func pair(name string, value, index *Type) *Type {
	align := index.bounds.align
	at := (value.size + align - 1) / align * align
	t, err := Struct([]int64{1, 1}, []int64{0, at}, []*Type{value, index})
	if err != nil {
		panic(err) // both types are defined in this file
	}
	t.name = name
	t.contents = Contents{Combiner: CombinerNamed}
	t.Commit()
	return t
}

// byName returns the named types by name.
func byName() map[string]*Type {
	all := map[string]*Type{}
	for _, t := range []*Type{
		Char, SignedChar, UnsignedChar, Short, UnsignedShort, Int, Unsigned, Long, UnsignedLong, LongLong,
		UnsignedLongLong, Float, Double, LongDouble, Wchar, CBool, Int8, Int16, Int32, Int64, Uint8, Uint16,
		Uint32, Uint64, Aint, Offset, Count, CFloatComplex, CDoubleComplex, CLongDoubleComplex, CxxBool,
		CxxFloatComplex, CxxDoubleComplex, CxxLongDoubleComplex, Byte, Packed, Integer, Real, DoublePrecision,
		Complex, DoubleComplex, Logical, Character, Integer16, Logical16, Real16, Complex32, FloatInt, DoubleInt, LongInt, TwoInt, ShortInt,
		LongDoubleInt, TwoReal, TwoDoublePrecision, TwoInteger,
	} {
		all[t.name] = t
	}
	// Two names for one type (MPI-4.1, table 3.2).
	all["MPI_LONG_LONG_INT"] = LongLong
	all["MPI_C_COMPLEX"] = CFloatComplex
	return all
}

// Named returns the named type that the standard calls name, such as
// MPI_DOUBLE, or nil.
func Named(name string) *Type { return namedTypesByName[name] }
