package datatypes

import (
	"slices"
	"testing"

	"github.com/isthmus-grid/isthmus/cabi/api"
	"github.com/isthmus-grid/isthmus/cabi/core/handles"
	"github.com/isthmus-grid/isthmus/cabi/core/reductions"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// named returns a predefined type.
func named(t *testing.T, name string) *Type {
	t.Helper()
	d, ok := Get(Named(name))
	if !ok {
		t.Fatalf("there is no %s", name)
	}
	return d
}

// made gives a type that was just made a handle, for the time of the test.
func made(t *testing.T, d *mpilib.Datatype, err error, from ...*Type) *Type {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	a := Add(d, from...)
	t.Cleanup(a.Remove)
	return a
}

// The constants are the standard's.
func TestConstants(t *testing.T) {
	for name, ours := range map[string]int32{
		"MPI_ORDER_C": OrderC, "MPI_ORDER_FORTRAN": OrderFortran, "MPI_UNDEFINED": undefined,
		"MPI_DISTRIBUTE_NONE": DistributeNone, "MPI_DISTRIBUTE_BLOCK": DistributeBlock, "MPI_DISTRIBUTE_CYCLIC": DistributeCyclic, "MPI_DISTRIBUTE_DFLT_DARG": DistributeDefault,
		"MPI_TYPECLASS_INTEGER": ClassInteger, "MPI_TYPECLASS_REAL": ClassReal, "MPI_TYPECLASS_COMPLEX": ClassComplex,
	} {
		if want, ok := values()[name]; !ok || ours != want {
			t.Errorf("%s is %d, the standard has %d (%v)", name, ours, want, ok)
		}
	}
}

// The standard's types have its handles and names; that of no type has none.
func TestPredefined(t *testing.T) {
	n := 0
	for _, c := range api.Constants() {
		if c.Type != "MPI_Datatype" {
			continue
		}
		d, ok := Get(Named(c.Name))
		if !ok {
			continue
		}
		n++
		if d.Name() != c.Name || d.Handle != Named(c.Name) || !d.IsPredefined() || d.Handle == 0 {
			t.Errorf("%s is %s, handle %#x", c.Name, d.Name(), d.Handle)
		}
	}
	if n < 60 {
		t.Errorf("there are %d types only", n)
	}
	if _, ok := Get(Named("MPI_DATATYPE_NULL")); ok {
		t.Error("MPI_DATATYPE_NULL is a type")
	}
	if named(t, "MPI_REAL8").Reduce(reductions.Prod) == nil || named(t, "MPI_PACKED").Reduce != nil {
		t.Error("a type has the operations of another")
	}
}

// A type of the program's has a handle and a name of its own, and data where its elements lie.
func TestAdded(t *testing.T) {
	old := named(t, "MPI_INT")
	vector, err := mpilib.TypeVector(2, 1, -3, old.Datatype)
	d := made(t, vector, err, old)
	if found, ok := Get(d.Handle); !ok || found != d || d.Handle < handles.First || d.IsPredefined() || d.Name() != "" || d.Reduce != nil {
		t.Errorf("%+v is at %#x", d, d.Handle)
	}
	if d.SetName("back"); d.Name() != "back" {
		t.Errorf("its name is %q", d.Name())
	}
	for n, want := range map[int][2]int{1: {-12, 4}, 3: {-12, 36}} {
		if low, high := d.Span(n); low != want[0] || high != want[1] {
			t.Errorf("%d elements lie from %d to %d, want %v", n, low, high, want)
		}
	}
	backwards, err := mpilib.TypeResized(old.Datatype, 0, -8)
	if low, high := made(t, backwards, err, old).Span(3); low != -16 || high != 4 {
		t.Errorf("elements with a negative extent lie from %d to %d", low, high)
	}
	d.Remove()
	if _, ok := Get(d.Handle); ok {
		t.Error("a type that was removed is there")
	}
}

// Arguments have the standard's values; those of large constructors are counts, but for those that have int there, too.
func TestArguments(t *testing.T) {
	old := named(t, "MPI_INT")
	order, _ := OrderOf(OrderFortran)
	block, _ := DistributionOf(DistributeBlock)
	cyclic, _ := DistributionOf(DistributeCyclic)
	darray, err := mpilib.TypeDarray(2, 1, mpilib.Darray{
		Sizes: []int{4, 5}, Distributions: []mpilib.Distribution{block, cyclic}, Arguments: []int{mpilib.DistributeDefault, 2}, Processes: []int{2, 1},
	}, order, old.Datatype)
	d := made(t, darray, err, old)
	standard := []int{int(DistributeBlock), int(DistributeCyclic), int(DistributeDefault), 2, 2, 1, int(OrderFortran)}
	for _, c := range []struct {
		large            bool
		integers, counts []int
	}{
		{false, slices.Concat([]int{2, 1, 2, 4, 5}, standard), nil},
		{true, slices.Concat([]int{2, 1, 2}, standard), []int{4, 5}},
	} {
		d.Large = c.large
		e, combiner := d.Envelope(), values()["MPI_COMBINER_DARRAY"]
		if want := (Envelope{combiner, len(c.integers), 0, len(c.counts), 1}); e != want {
			t.Errorf("the envelope is %+v, want %+v", e, want)
		}
		a, err := d.Arguments()
		if err != nil || !slices.Equal(a.Integers, c.integers) || !slices.Equal(a.Counts, c.counts) || len(a.Addresses) > 0 || a.Types() != 1 || a.Handle(0) != old.Handle {
			t.Errorf("the arguments are %+v, %v; want %+v", a, err, c)
		}
	}
	outer, err := mpilib.TypeContiguous(2, d.Datatype)
	a, err := made(t, outer, err, d).Arguments()
	if err != nil {
		t.Fatal(err)
	}
	again, ok := Get(a.Handle(0))
	if !ok || again == d || !again.Large {
		t.Errorf("the inner type is %+v", again)
	}
	if _, err := old.Arguments(); err == nil {
		t.Error("a predefined type has arguments")
	}
	if _, ok := OrderOf(0); ok {
		t.Error("0 is an order")
	}
	if _, ok := DistributionOf(DistributeDefault); ok {
		t.Error("an argument is a distribution")
	}
}

// The length of a message is that which has so many elements of predefined types.
func TestBytes(t *testing.T) {
	short, double := named(t, "MPI_SHORT"), named(t, "MPI_DOUBLE")
	mixed, err := mpilib.TypeStruct([]int{2, 1}, []int{0, 8}, []*mpilib.Datatype{short.Datatype, double.Datatype})
	d := made(t, mixed, err, short, double)
	for n, want := range map[int64]int64{0: 0, 1: 2, 2: 4, 3: 12, 4: 14, 6: 24, 3e15: 12e15} {
		if got, ok := d.Bytes(n); !ok || got != want {
			t.Errorf("%d elements have %d bytes, %v; want %d", n, got, ok, want)
		}
	}
	for _, n := range []int64{-1, 1 << 62} {
		if got, ok := d.Bytes(n); ok {
			t.Errorf("%d elements have %d bytes", n, got)
		}
	}
}
