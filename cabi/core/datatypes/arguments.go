package datatypes

import (
	"slices"

	"github.com/isthmus-grid/isthmus/mpilib"
)

// A type remembers that a constructor with counts of 64 bits made it: its arguments are returned as large
// counts, and by MPI_Type_get_envelope_c and MPI_Type_get_contents_c only (MPI-5.0, section 5.1.13).

// Orders and distributions of arrays.
const (
	OrderC       = int32(0xc)
	OrderFortran = int32(0xf)

	DistributeNone    = int32(16)
	DistributeBlock   = int32(17)
	DistributeCyclic  = int32(18)
	DistributeDefault = int32(19) // MPI_DISTRIBUTE_DFLT_DARG
)

// orders and distributions are mpilib's values of these constants.
var (
	orders        = map[int32]mpilib.Order{OrderC: mpilib.OrderC, OrderFortran: mpilib.OrderFortran}
	distributions = map[int32]mpilib.Distribution{
		DistributeNone: mpilib.DistributeNone, DistributeBlock: mpilib.DistributeBlock, DistributeCyclic: mpilib.DistributeCyclic,
	}
)

// OrderOf returns mpilib's value of an order.
func OrderOf(order int32) (mpilib.Order, bool) {
	o, ok := orders[order]
	return o, ok
}

// DistributionOf returns mpilib's value of a distribution.
func DistributionOf(distribution int32) (mpilib.Distribution, bool) {
	d, ok := distributions[distribution]
	return d, ok
}

// Envelope is how a type was made, and of how many arguments of each sort (MPI-5.0, section 5.1.13).
type Envelope struct {
	Combiner                           int32
	Integers, Addresses, Counts, Types int
}

// Envelope returns that of d.
func (d *Type) Envelope() Envelope {
	if d.asked != nil {
		return Envelope{Combiner: values()[d.asked.Combiner], Integers: len(d.asked.integers())}
	}
	c, integers, addresses, types := d.Datatype.Envelope()
	e := Envelope{Combiner: values()[c.String()], Integers: integers, Addresses: addresses, Types: types}
	if d.Large {
		from, to := counted(c, integers)
		e.Integers, e.Addresses, e.Counts = integers-(to-from), 0, to-from+addresses
	}
	return e
}

// counted is where the counts are among n integers of a constructor; its addresses are counts, too.
func counted(c mpilib.Combiner, n int) (from, to int) {
	switch c {
	case mpilib.CombinerSubarray: // between the number of dimensions and the order
		return 1, n - 1
	case mpilib.CombinerDarray: // the sizes; of the other lists, none has counts
		return 3, 3 + (n-4)/4
	}
	return 0, n
}

// Arguments are those that a type was made of, as a program gets them.
type Arguments struct {
	Integers, Addresses, Counts []int

	types []*mpilib.Datatype
	from  []*Type
}

// Arguments returns those of d, which is not predefined with a name.
func (d *Type) Arguments() (Arguments, error) {
	if d.asked != nil {
		return Arguments{Integers: d.asked.integers()}, nil
	}
	c, err := d.Datatype.Contents()
	if err != nil {
		return Arguments{}, err
	}
	standardValues(c)
	a := Arguments{Integers: c.Integers, Addresses: c.Addresses, types: c.Types, from: d.from}
	if d.Large {
		from, to := counted(c.Combiner, len(c.Integers))
		a.Counts = slices.Concat(c.Integers[from:to], c.Addresses)
		a.Integers, a.Addresses = slices.Concat(c.Integers[:from], c.Integers[to:]), nil
	}
	return a, nil
}

// Types returns how many types there are among the arguments.
func (a Arguments) Types() int { return len(a.types) }

// Handle returns the handle of a predefined type among them, and a new one of another.
func (a Arguments) Handle(i int) uintptr {
	old := a.from[i]
	if old.IsPredefined() {
		return old.Handle
	}
	again := Add(a.types[i], old.from...)
	again.Large = old.Large
	return again.Handle
}

// standardValues gives orders and distributions the standard's values.
func standardValues(c mpilib.Contents) {
	if c.Combiner != mpilib.CombinerSubarray && c.Combiner != mpilib.CombinerDarray {
		return
	}
	last := &c.Integers[len(c.Integers)-1]
	for ours, theirs := range orders {
		if mpilib.Order(*last) == theirs {
			*last = int(ours)
			break
		}
	}
	if c.Combiner != mpilib.CombinerDarray {
		return
	}
	n := c.Integers[2] // dimensions, after the numbers of processes and of this one; sizes follow
	for i := 3 + n; i < 3+2*n; i++ {
		c.Integers[i] = distributionFrom(mpilib.Distribution(c.Integers[i]))
		if c.Integers[i+n] == mpilib.DistributeDefault {
			c.Integers[i+n] = int(DistributeDefault)
		}
	}
}

// distributionFrom returns the standard's value of a distribution.
func distributionFrom(d mpilib.Distribution) int {
	for ours, theirs := range distributions {
		if d == theirs {
			return int(ours)
		}
	}
	return int(undefined)
}
