package datatype

import "slices"

// finish finishes a type that fn made, with the shape s and the measure m. tooLarge names the
// arguments for the error if something did not fit.
func finish(fn, tooLarge string, s shape, m *measure, c Contents) (*Type, error) {
	lb, ub := m.bounds.limits(&m.sum)
	extent := m.sub(ub, lb)
	if m.overflow {
		return nil, badArg(fn, tooLarge, "make a type whose size or bounds are beyond 64 bits")
	}
	return &Type{size: m.size, extent: extent, external: m.external, bounds: m.bounds, sig: m.sig, shape: s, contents: c}, nil
}

// Contiguous returns count elements of old, one after the other
// (MPI_Type_contiguous; MPI-4.1, 5.1.2).
func Contiguous(count int64, old *Type) (*Type, error) {
	const fn = "Contiguous"
	if err := countAndType(fn, "count", count, old); err != nil {
		return nil, err
	}
	g := grid{old, 1, count, 0}
	return finish(fn, "count", g, g.measure(), Contents{CombinerContiguous, []int64{count}, nil, []*Type{old}})
}

// Vector returns count blocks of length elements of old. Blocks start stride
// extents of old apart (MPI_Type_vector; MPI-4.1, 5.1.2).
func Vector(count, length, stride int64, old *Type) (*Type, error) {
	const fn = "Vector"
	if err := vectorArgs(fn, count, length, old); err != nil {
		return nil, err
	}
	g := grid{old, count, length, 0}
	if count > 1 {
		var ok bool
		if g.stride, ok = mulOK(stride, old.extent); !ok {
			return nil, badArg(fn, "stride", "of %d elements of %d bytes is beyond 64 bits", stride, old.extent)
		}
	}
	return finish(fn, "count, length and stride", g, g.measure(), Contents{CombinerVector, []int64{count, length, stride}, nil, []*Type{old}})
}

// Hvector is Vector with the stride in bytes (MPI_Type_create_hvector;
// MPI-4.1, 5.1.2).
func Hvector(count, length, stride int64, old *Type) (*Type, error) {
	const fn = "Hvector"
	if err := vectorArgs(fn, count, length, old); err != nil {
		return nil, err
	}
	g := grid{old, count, length, stride}
	return finish(fn, "count, length and stride", g, g.measure(), Contents{CombinerHvector, []int64{count, length}, []int64{stride}, []*Type{old}})
}

// Indexed returns blocks of old: block i has lengths[i] elements and starts
// displacements[i] extents of old from the base (MPI_Type_indexed; MPI-4.1,
// 5.1.2). The slices are copied.
func Indexed(lengths, displacements []int64, old *Type) (*Type, error) {
	const fn = "Indexed"
	if err := listArgs(fn, lengths, displacements, old); err != nil {
		return nil, err
	}
	n := len(lengths)
	ints := slices.Concat([]int64{int64(n)}, lengths, displacements)
	l := list{old: old, lengths: ints[1 : n+1 : n+1], displacements: ints[n+1:], scale: old.extent}
	return finish(fn, "lengths and displacements", l, l.measure(), Contents{CombinerIndexed, ints, nil, []*Type{old}})
}

// Hindexed is Indexed with displacements in bytes (MPI_Type_create_hindexed;
// MPI-4.1, 5.1.2).
func Hindexed(lengths, displacements []int64, old *Type) (*Type, error) {
	const fn = "Hindexed"
	if err := listArgs(fn, lengths, displacements, old); err != nil {
		return nil, err
	}
	ints := slices.Concat([]int64{int64(len(lengths))}, lengths)
	at := slices.Clone(displacements)
	l := list{old: old, lengths: ints[1:], displacements: at, scale: 1}
	return finish(fn, "lengths and displacements", l, l.measure(), Contents{CombinerHindexed, ints, at, []*Type{old}})
}

// IndexedBlock is Indexed with blocks of the same length
// (MPI_Type_create_indexed_block; MPI-4.1, 5.1.2).
func IndexedBlock(length int64, displacements []int64, old *Type) (*Type, error) {
	const fn = "IndexedBlock"
	if err := countAndType(fn, "length", length, old); err != nil {
		return nil, err
	}
	ints := slices.Concat([]int64{int64(len(displacements)), length}, displacements)
	l := list{old: old, length: length, displacements: ints[2:], scale: old.extent}
	return finish(fn, "length and displacements", l, l.measure(), Contents{CombinerIndexedBlock, ints, nil, []*Type{old}})
}

// HindexedBlock is IndexedBlock with displacements in bytes
// (MPI_Type_create_hindexed_block; MPI-4.1, 5.1.2).
func HindexedBlock(length int64, displacements []int64, old *Type) (*Type, error) {
	const fn = "HindexedBlock"
	if err := countAndType(fn, "length", length, old); err != nil {
		return nil, err
	}
	at := slices.Clone(displacements)
	l := list{old: old, length: length, displacements: at, scale: 1}
	return finish(fn, "length and displacements", l, l.measure(), Contents{CombinerHindexedBlock, []int64{int64(len(at)), length}, at, []*Type{old}})
}

// Struct returns blocks of different types: block i has lengths[i] elements
// of types[i] and starts displacements[i] bytes from the base
// (MPI_Type_create_struct; MPI-4.1, 5.1.2). The slices are copied.
func Struct(lengths, displacements []int64, types []*Type) (*Type, error) {
	const fn = "Struct"
	if len(types) != len(lengths) {
		return nil, badArg(fn, "types", "has %d entries where lengths has %d", len(types), len(lengths))
	}
	if len(displacements) != len(lengths) {
		return nil, badArg(fn, "displacements", "has %d entries where lengths has %d", len(displacements), len(lengths))
	}
	for i, n := range lengths {
		if n < 0 {
			return nil, badArg(fn, "lengths", "has %d at index %d", n, i)
		}
		if types[i] == nil {
			return nil, badArg(fn, "types", "has nil at index %d", i)
		}
	}
	ints := slices.Concat([]int64{int64(len(lengths))}, lengths)
	f := fields{slices.Clone(types), ints[1:], slices.Clone(displacements)}
	return finish(fn, "lengths and displacements", f, f.measure(), Contents{CombinerStruct, ints, f.displacements, f.types})
}

// Resized returns old with another lower bound and extent, which may be
// negative (MPI_Type_create_resized; MPI-4.1, 5.1.7).
func Resized(old *Type, lb, extent int64) (*Type, error) {
	const fn = "Resized"
	if old == nil {
		return nil, badArg(fn, "old", "is nil")
	}
	ub, ok := addOK(lb, extent)
	if !ok {
		return nil, badArg(fn, "extent", "of %d from %d on is beyond 64 bits", extent, lb)
	}
	m := &measure{size: old.size, external: old.external, bounds: old.bounds, sig: old.sig}
	m.bounds.marked, m.bounds.lb, m.bounds.ub = true, lb, ub
	return finish(fn, "extent", same{old}, m, Contents{CombinerResized, nil, []int64{lb, extent}, []*Type{old}})
}

// Dup returns a copy of t, committed if t is (MPI_Type_dup; MPI-4.1,
// 5.1.10).
func (t *Type) Dup() *Type {
	d := &Type{size: t.size, extent: t.extent, external: t.external, bounds: t.bounds, sig: t.sig,
		shape: same{t}, contents: Contents{Combiner: CombinerDup, Types: []*Type{t}}}
	d.plan.Store(t.plan.Load())
	return d
}

func countAndType(fn, arg string, n int64, old *Type) error {
	if old == nil {
		return badArg(fn, "old", "is nil")
	}
	if n < 0 {
		return badArg(fn, arg, "is %d", n)
	}
	return nil
}

func vectorArgs(fn string, count, length int64, old *Type) error {
	if err := countAndType(fn, "count", count, old); err != nil {
		return err
	}
	return countAndType(fn, "length", length, old)
}

func listArgs(fn string, lengths, displacements []int64, old *Type) error {
	if old == nil {
		return badArg(fn, "old", "is nil")
	}
	if len(lengths) != len(displacements) {
		return badArg(fn, "displacements", "has %d entries where lengths has %d", len(displacements), len(lengths))
	}
	for i, n := range lengths {
		if n < 0 {
			return badArg(fn, "lengths", "has %d at index %d", n, i)
		}
	}
	return nil
}
