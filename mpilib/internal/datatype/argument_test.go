package datatype

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
)

const most64 = int64(math.MaxInt64)

// TestBadArguments: every error names the constructor and the argument.
func TestBadArguments(t *testing.T) {
	type result struct {
		t   *Type
		err error
	}
	of := func(t *Type, err error) result { return result{t, err} }
	one := []int64{1}
	huge := must(Contiguous(most64/8, Double))
	low := must(Resized(Int, math.MinInt64, 4))
	array := func(change func(*Grid)) result {
		g := Grid{[]int64{6}, []Distribution{DistributeBlock}, []int64{DistributeDefault}, []int64{2}}
		change(&g)
		return of(Darray(2, 0, g, OrderC, Int))
	}
	for _, c := range []struct {
		want string // constructor: argument
		got  result
	}{
		{"Contiguous: count", of(Contiguous(-1, Int))},
		{"Contiguous: old", of(Contiguous(1, nil))},
		{"Contiguous: count", of(Contiguous(most64/4+1, Int))},
		{"Contiguous: count", of(Contiguous(2, huge))},
		{"Vector: count", of(Vector(-1, 1, 1, Int))},
		{"Vector: length", of(Vector(1, -1, 1, Int))},
		{"Vector: stride", of(Vector(2, 1, most64, Int))},
		{"Vector: count, length and stride", of(Vector(most64, 1, 1, Int))},
		{"Hvector: count, length and stride", of(Hvector(3, 1, most64/2, Int))},
		{"Hvector: count, length and stride", of(Hvector(3, 1, math.MinInt64, Int))},
		{"Hvector: old", of(Hvector(3, 1, 0, nil))},
		{"Indexed: lengths has -4", of(Indexed([]int64{1, -4}, []int64{0, 0}, Int))},
		{"Indexed: displacements", of(Indexed(one, nil, Int))},
		{"Indexed: lengths and displacements", of(Indexed(one, []int64{most64}, Int))},
		{"Hindexed: lengths and displacements", of(Hindexed(one, []int64{most64}, Int))},
		{"Hindexed: lengths and displacements", of(Hindexed([]int64{most64, most64}, []int64{0, 0}, Byte))},
		{"Hindexed: old", of(Hindexed(one, one, nil))},
		{"IndexedBlock: length", of(IndexedBlock(-1, one, Int))},
		{"IndexedBlock: length and displacements", of(IndexedBlock(1, []int64{math.MinInt64}, Int))},
		{"HindexedBlock: length", of(HindexedBlock(-1, one, Int))},
		{"HindexedBlock: length and displacements", of(HindexedBlock(1, []int64{most64 - 3}, Int))},
		{"Struct: types has 0", of(Struct(one, one, nil))},
		{"Struct: types has nil", of(Struct(one, one, []*Type{nil}))},
		{"Struct: displacements", of(Struct(one, nil, []*Type{Int}))},
		{"Struct: lengths has -1", of(Struct([]int64{-1}, one, []*Type{Int}))},
		{"Struct: lengths and displacements", of(Struct([]int64{1, 1}, []int64{math.MinInt64, most64 - 8}, []*Type{Int, Int}))},
		{"Struct: lengths and displacements", of(Struct([]int64{2}, []int64{-1}, []*Type{low}))},
		{"Resized: old", of(Resized(nil, 0, 0))},
		{"Resized: extent", of(Resized(Int, most64, 1))},
		{"Subarray: sizes", of(Subarray(nil, nil, nil, OrderC, Int))},
		{"Subarray: sizes", of(Subarray([]int64{0}, one, one, OrderC, Int))},
		{"Subarray: subsizes", of(Subarray(one, nil, nil, OrderC, Int))},
		{"Subarray: subsizes", of(Subarray(one, []int64{2}, one, OrderC, Int))},
		{"Subarray: starts", of(Subarray(one, one, nil, OrderC, Int))},
		{"Subarray: starts", of(Subarray([]int64{4}, []int64{3}, []int64{2}, OrderC, Int))},
		{"Subarray: order", of(Subarray(one, one, []int64{0}, 7, Int))},
		{"Subarray: old", of(Subarray(one, one, []int64{0}, OrderC, nil))},
		{"Subarray: sizes", of(Subarray([]int64{most64, most64}, []int64{1, 1}, []int64{0, 0}, OrderC, Int))},
		{"Darray: Sizes", array(func(g *Grid) { g.Sizes[0] = 0 })},
		{"Darray: Sizes", array(func(g *Grid) { g.Sizes[0] = most64 })},
		{"Darray: Distributions, Arguments and Processes", array(func(g *Grid) { g.Arguments = nil })},
		{"Darray: Distributions has 9", array(func(g *Grid) { g.Distributions[0] = 9 })},
		{"Darray: Arguments", array(func(g *Grid) { g.Arguments[0] = 0 })},
		{"Darray: Arguments", array(func(g *Grid) { g.Arguments[0] = 2 })},
		{"Darray: Processes", array(func(g *Grid) { g.Processes[0] = 0 })},
		{"Darray: Processes", array(func(g *Grid) { g.Processes[0] = 3 })},
		{"Darray: Processes", array(func(g *Grid) { g.Distributions[0] = DistributeNone })},
		{"Darray: rank", of(Darray(1, 1, Grid{one, []Distribution{0}, []int64{-1}, one}, OrderC, Int))},
	} {
		if c.got.t != nil || !errors.Is(c.got.err, ErrArgument) || !strings.Contains(fmt.Sprint(c.got.err), "datatype: "+c.want) {
			t.Errorf("want a refusal of %s, got %v, %v", c.want, c.got.t, c.got.err)
		}
	}
}

// TestLargestTypes: types that just fit work.
func TestLargestTypes(t *testing.T) {
	all := must(Contiguous(most64, Byte))
	if at, ok := all.Contiguous(); at != 0 || !ok || all.Size() != most64 {
		t.Errorf("%v begins at %d, %v", all, at, ok)
	}
	ends := must(HindexedBlock(4, []int64{-most64 / 2, most64/2 - 8}, Byte))
	if low, high, err := ends.Span(1); low != -most64/2 || high != most64/2-4 || err != nil {
		t.Errorf("Span = %d, %d, %v", low, high, err)
	}
	far := must(Resized(Int, 0, most64/4))
	if far.maxCount() != 4 || must(Resized(Int, 0, -most64/4)).maxCount() != 5 {
		t.Errorf("%d and %d elements fit", far.maxCount(), must(Resized(Int, 0, -most64/4)).maxCount())
	}
	if n := must(Resized(Int, 0, math.MinInt64)).maxCount(); n != 2 {
		t.Errorf("%d elements fit", n)
	}
	// Sixty nested structs of two have 2^60 elements.
	tree := Char
	for range 60 {
		tree = must(Struct([]int64{1, 1}, []int64{0, 1 << 30}, []*Type{tree, must(Resized(tree, 0, 1))}))
	}
	if tree.Size() != 1<<60 {
		t.Errorf("%v has size %d", tree, tree.Size())
	}
}

// TestBadMessages: invalid messages are rejected before any memory is touched.
func TestBadMessages(t *testing.T) {
	buf := make([]byte, 16)
	raw, err := Contiguous(2, Int)
	if err != nil {
		t.Fatal(err)
	}
	v := must(Vector(2, 1, 2, Int))
	for what, f := range map[string]func() error{
		"uncommitted":       func() error { _, err := raw.Pack(buf, nil, 1, 0); return wrap(err, ErrUncommitted) },
		"uncommitted slice": func() error { _, err := raw.UnpackSlice(buf, 0, 1, buf, 0); return wrap(err, ErrUncommitted) },
		"uncommitted ext":   func() error { _, err := raw.PackExternal(buf, nil, 1); return wrap(err, ErrUncommitted) },
		"negative count":    func() error { _, err := v.Pack(buf, nil, -1, 0); return wrap(err, ErrRange) },
		"huge count":        func() error { _, err := v.Pack(buf, nil, most64/4, 0); return wrap(err, ErrRange) },
		"negative position": func() error { _, err := v.Pack(buf, nil, 1, -1); return wrap(err, ErrRange) },
		"late position":     func() error { _, err := v.Unpack(nil, 2, buf, 17); return wrap(err, ErrRange) },
		"beyond a slice":    func() error { _, err := v.PackSlice(buf, buf[:11], 0, 1, 0); return wrap(err, ErrRange) },
		"before a slice":    func() error { _, err := v.PackSlice(buf, buf, -1, 1, 0); return wrap(err, ErrRange) },
		"origin":            func() error { _, err := v.UnpackSlice(buf, most64, 1, buf, 0); return wrap(err, ErrRange) },
		"short external":    func() error { _, err := v.PackExternal(buf[:7], nil, 1); return wrap(err, ErrRange) },
		"span":              func() error { _, _, err := v.Span(most64); return wrap(err, ErrArgument) },
		"packed size":       func() error { _, err := v.PackedSize(-1); return wrap(err, ErrArgument) },
		"external size":     func() error { _, err := v.ExternalSize(most64); return wrap(err, ErrArgument) },
		"signature":         func() error { _, err := v.Signature(-1); return wrap(err, ErrArgument) },
		"accepts":           func() error { _, err := v.Accepts(-1, Signature{}); return wrap(err, ErrArgument) },
	} {
		if err := f(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for i, b := range buf {
		if b != 0 {
			t.Errorf("byte %d was written", i)
		}
	}
}

// wrap returns an error unless err is want.
func wrap(err, want error) error {
	if errors.Is(err, want) {
		return nil
	}
	return fmt.Errorf("got %v, want %w", err, want)
}

func TestCheckedArithmetic(t *testing.T) {
	edges := []int64{0, 1, -1, 2, -2, 3, most64, -most64, math.MinInt64, most64 / 2, most64/2 + 1, math.MinInt64 / 2, 1 << 32, -1 << 32, 1 << 31, 3037000500}
	for _, a := range edges {
		for _, b := range edges {
			checkArithmetic(t, a, b)
		}
	}
}
