package reduction

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/mpilib/internal/buffer"
	"github.com/isthmus-grid/isthmus/mpilib/internal/datatype"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
)

// classes has the named types that reductions take, by what the standard's tables say of their
// elements and by their size (MPI-5.0, section 6.9.2).
var classes = map[string]string{
	"MPI_SIGNED_CHAR": "i1", "MPI_SHORT": "i2", "MPI_INT": "i4", "MPI_LONG": "i8", "MPI_LONG_LONG": "i8", "MPI_LONG_LONG_INT": "i8",
	"MPI_INT8_T": "i1", "MPI_INT16_T": "i2", "MPI_INT32_T": "i4", "MPI_INT64_T": "i8", "MPI_INTEGER": "i4",
	"MPI_AINT": "i8", "MPI_OFFSET": "i8", "MPI_COUNT": "i8",
	"MPI_UNSIGNED_CHAR": "u1", "MPI_UNSIGNED_SHORT": "u2", "MPI_UNSIGNED": "u4", "MPI_UNSIGNED_LONG": "u8", "MPI_UNSIGNED_LONG_LONG": "u8",
	"MPI_UINT8_T": "u1", "MPI_UINT16_T": "u2", "MPI_UINT32_T": "u4", "MPI_UINT64_T": "u8",
	"MPI_FLOAT": "f4", "MPI_DOUBLE": "f8", "MPI_REAL": "f4", "MPI_DOUBLE_PRECISION": "f8",
	"MPI_C_COMPLEX": "c4", "MPI_C_FLOAT_COMPLEX": "c4", "MPI_C_DOUBLE_COMPLEX": "c8", "MPI_CXX_FLOAT_COMPLEX": "c4",
	"MPI_CXX_DOUBLE_COMPLEX": "c8", "MPI_COMPLEX": "c4", "MPI_DOUBLE_COMPLEX": "c8",
	"MPI_C_BOOL": "l1", "MPI_CXX_BOOL": "l1", "MPI_LOGICAL": "l4", "MPI_BYTE": "b1",
	"MPI_FLOAT_INT": "f4i4", "MPI_DOUBLE_INT": "f8i4", "MPI_LONG_INT": "i8i4", "MPI_2INT": "i4i4", "MPI_SHORT_INT": "i2i4",
	"MPI_2REAL": "f4f4", "MPI_2DOUBLE_PRECISION": "f8f8", "MPI_2INTEGER": "i4i4",
}

// defined says which operators the tables define for a class.
var defined = map[byte]string{
	'i': "MAX MIN SUM PROD LAND BAND LOR BOR LXOR BXOR", 'u': "MAX MIN SUM PROD LAND BAND LOR BOR LXOR BXOR",
	'f': "MAX MIN SUM PROD", 'c': "SUM PROD", 'l': "LAND LOR LXOR", 'b': "BAND BOR BXOR", 'p': "MAXLOC MINLOC",
}

func isDefined(class, op string) bool {
	kind := class[0]
	if len(class) == 4 {
		kind = 'p'
	}
	return strings.Contains(" "+defined[kind]+" ", " "+op+" ")
}

// combined is the plain reduction of two elements, a of the lower rank.
func combined(class, op string, a, b []byte) []byte {
	size := int(class[1] - '0')
	switch {
	case len(class) == 4:
		order := compared(class, a, b)
		if op == "MAXLOC" {
			order = -order
		}
		if order < 0 || order == 0 && compared(class[2:], a[size:], b[size:]) < 0 {
			return a
		}
		return b
	case op == "MAX" && compared(class, a, b) > 0, op == "MIN" && compared(class, a, b) < 0:
		return a
	case op == "MAX" || op == "MIN":
		return b
	case class[0] == 'f':
		return putFloat(size, arithmetic(op, getFloat(a[:size]), getFloat(b[:size])))
	case class[0] == 'c':
		x, y := complex(getFloat(a[:size]), getFloat(a[size:])), complex(getFloat(b[:size]), getFloat(b[size:]))
		z := arithmetic(op, x, y)
		return append(putFloat(size, real(z)), putFloat(size, imag(z))...)
	}
	x, y := getUint(a), getUint(b)
	truth := map[bool]uint64{true: 1}
	return putUint(size, map[string]uint64{
		"SUM": x + y, "PROD": x * y, "BAND": x & y, "BOR": x | y, "BXOR": x ^ y,
		"LAND": truth[x != 0 && y != 0], "LOR": truth[x != 0 || y != 0], "LXOR": truth[(x != 0) != (y != 0)],
	}[op])
}

func arithmetic[T float64 | complex128](op string, a, b T) T {
	if op == "SUM" {
		return a + b
	}
	return a * b
}

func compared(class string, a, b []byte) int {
	size := int(class[1] - '0')
	x, y := getUint(a[:size]), getUint(b[:size])
	switch shift := 64 - 8*size; class[0] {
	case 'f':
		return cmp.Compare(getFloat(a[:size]), getFloat(b[:size]))
	case 'i':
		return cmp.Compare(int64(x<<shift), int64(y<<shift))
	}
	return cmp.Compare(x, y)
}

func getUint(b []byte) uint64 {
	var all [8]byte
	copy(all[:], b)
	return binary.LittleEndian.Uint64(all[:])
}

func putUint(size int, v uint64) []byte { return binary.LittleEndian.AppendUint64(nil, v)[:size] }

func getFloat(b []byte) float64 {
	if len(b) == 4 {
		return float64(math.Float32frombits(uint32(getUint(b))))
	}
	return math.Float64frombits(getUint(b))
}

func putFloat(size int, v float64) []byte {
	if size == 4 {
		return putUint(4, uint64(math.Float32bits(float32(v))))
	}
	return putUint(8, math.Float64bits(v))
}

// element returns a random element of a class; small ones, so that some are equal and products exact.
func element(r *rand.Rand, class string) (b []byte) {
	for ; class != ""; class = class[2:] {
		size, v := int(class[1]-'0'), r.IntN(7)-3
		switch class[0] {
		case 'f':
			b = append(b, putFloat(size, float64(v)+0.5)...)
		case 'c':
			b = append(append(b, putFloat(size, float64(v))...), putFloat(size, float64(r.IntN(7)-3))...)
		case 'l':
			b = append(b, putUint(size, uint64(max(0, v)))...)
		default:
			b = append(b, putUint(size, uint64(v)*uint64(1+r.IntN(2)*37))...)
		}
	}
	return b
}

// elements returns n of them, at an odd address.
func elements(r *rand.Rand, class string, n int) []byte {
	b := make([]byte, 1, 4096)
	for range n {
		b = append(b, element(r, class)...)
	}
	return b[1:]
}

// Each predefined operator is defined for the types of the standard's tables, and no others, and
// gives what they say.
func TestPredefined(t *testing.T) {
	for name, class := range classes {
		for _, opName := range names[1:] {
			op, err := Named(opName)
			if err != nil || op.String() != opName || !op.commutative {
				t.Fatalf("Named(%s): %v, %v", opName, op, err)
			}
			short := strings.TrimPrefix(opName, "MPI_")
			layout := datatype.Named(name)
			o, err := op.On(&buffer.Part{Layout: layout})
			if want := isDefined(class, short); (err == nil) != want || err != nil && !errors.Is(err, mpi.ErrOp) {
				t.Errorf("%s of %s: %v; defined is %t", opName, name, err, want)
			}
			if err != nil {
				continue
			}
			if o.Elem != int(layout.Size()) || !o.Commutative {
				t.Errorf("%s of %s: %+v", opName, name, o)
			}
			r := rand.New(rand.NewPCG(1, 2))
			for n := range 40 {
				in, inout := elements(r, class, n), elements(r, class, n)
				var want []byte
				for at := 0; at < len(in); at += o.Elem {
					want = append(want, combined(class, short, in[at:at+o.Elem], inout[at:at+o.Elem])...)
				}
				before := bytes.Clone(in)
				if err := o.Apply(inout, in); err != nil || !bytes.Equal(inout, want) || !bytes.Equal(in, before) {
					t.Fatalf("%s of %d times %s: %v, got %x, want %x", opName, n, name, err, inout, want)
				}
			}
		}
	}
}

// Slices of Go's types have the operators of the types that are like them.
func TestGoTypes(t *testing.T) {
	sum, _ := Named("MPI_SUM")
	a, b := buffer.PartOf([]float64{1, 2}), buffer.PartOf([]float64{10, 20})
	o, err := sum.On(&a)
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Apply(a.Message, b.Message); err != nil || getFloat(a.Message[8:]) != 22 {
		t.Errorf("%v, %v", a.Message, err)
	}
	type point struct{ X, Y float64 }
	bad := buffer.PartOf(make([]point, 1))
	if _, err := sum.On(&bad); !errors.Is(err, mpi.ErrOp) {
		t.Errorf("a struct: %v", err)
	}
}

// What is no operator, or none that Go can carry out, says so.
func TestNoOperator(t *testing.T) {
	for _, name := range []string{"", "MPI_OP_NULL", "MPI_REPLACE", "MPI_NO_OP", "sum"} {
		if _, err := Named(name); !errors.Is(err, mpi.ErrOp) {
			t.Errorf("Named(%q): %v", name, err)
		}
	}
	sum, _ := Named("MPI_SUM")
	for _, name := range []string{"MPI_LONG_DOUBLE", "MPI_C_LONG_DOUBLE_COMPLEX", "MPI_WCHAR", "MPI_PACKED", "MPI_CHARACTER"} {
		if _, err := sum.On(&buffer.Part{Layout: datatype.Named(name)}); !errors.Is(err, mpi.ErrOp) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := (Op{}).On(&buffer.Part{Layout: datatype.Int}); !errors.Is(err, mpi.ErrOp) || (Op{}).String() != "MPI_OP_NULL" {
		t.Errorf("the zero Op: %v", err)
	}
	if !charIsSigned("linux", "amd64") || !charIsSigned("darwin", "arm64") || charIsSigned("linux", "arm64") {
		t.Error("char has the wrong sign")
	}
}

// A program's operator gets elements laid out as the datatype says, aligned, with lower and higher
// displacements than the origin, and what it writes between them is not in messages.
func TestProgramsOperator(t *testing.T) {
	for name, make := range map[string]func() (*datatype.Type, error){
		"dense":    func() (*datatype.Type, error) { return datatype.Contiguous(3, datatype.Int32) },
		"vector":   func() (*datatype.Type, error) { return datatype.Vector(3, 1, 2, datatype.Int32) },
		"backward": func() (*datatype.Type, error) { return datatype.Vector(3, 1, -2, datatype.Int32) },
		"ahead":    func() (*datatype.Type, error) { return datatype.Hindexed([]int64{3}, []int64{40}, datatype.Int32) },
		"behind":   func() (*datatype.Type, error) { return datatype.Hindexed([]int64{3}, []int64{-40}, datatype.Int32) },
		"pair": func() (*datatype.Type, error) {
			return datatype.Struct([]int64{1, 1}, []int64{0, 8}, []*datatype.Type{datatype.Double, datatype.Int32})
		},
	} {
		layout, err := make()
		if err != nil {
			t.Fatal(err)
		}
		layout.Commit()
		_, extent := layout.Extent()
		op := New("both", false, func(inout, in []byte, origin, count int) error {
			if address(inout[origin:])%uintptr(layout.Align()) != 0 || address(in[origin:])%uintptr(layout.Align()) != 0 {
				return errors.New("not aligned")
			}
			low, high, err := layout.Span(int64(count))
			if err != nil || int(low) < -origin || int(high) > len(in)-origin || len(in) != len(inout) {
				return fmt.Errorf("%d elements need %d to %d of %d bytes around %d: %v", count, low, high, len(in), origin, err)
			}
			for i := range count {
				one := origin + i*int(extent)
				a, b := packed(layout, inout, one), packed(layout, in, one)
				for k := range a {
					a[k] = 3*a[k] + b[k]
				}
				if _, err := layout.UnpackSlice(inout, int64(one), 1, a, 0); err != nil {
					return err
				}
			}
			return nil
		})
		o, err := op.On(&buffer.Part{Layout: layout})
		if err != nil || o.Commutative || o.Elem != int(layout.Size()) || op.String() != "both" {
			t.Fatalf("%s: %+v, %v", name, o, err)
		}
		for _, shift := range []int{0, 1} {
			r := rand.New(rand.NewPCG(3, 4))
			in, inout := elements(r, "b1", shift+5*o.Elem)[shift:], elements(r, "b1", shift+5*o.Elem)[shift:]
			want := bytes.Clone(inout)
			for k := range want {
				want[k] = 3*want[k] + in[k]
			}
			if err := o.Apply(inout, in); err != nil || !bytes.Equal(inout, want) {
				t.Errorf("%s: %v: %x, want %x", name, err, inout, want)
			}
		}
		failure := errors.New("it failed")
		o, _ = New("", true, func(_, _ []byte, _, _ int) error { return failure }).On(&buffer.Part{Layout: layout})
		if err := o.Apply(elements(rand.New(rand.NewPCG(1, 1)), "b1", o.Elem), elements(rand.New(rand.NewPCG(1, 1)), "b1", o.Elem)); err != failure {
			t.Errorf("%s: the operator's error became %v", name, err)
		}
	}
}

// packed returns the message of the element at origin.
func packed(layout *datatype.Type, memory []byte, origin int) []byte {
	b := make([]byte, layout.Size())
	if _, err := layout.PackSlice(b, memory, int64(origin), 1, 0); err != nil {
		panic(err)
	}
	return b
}
