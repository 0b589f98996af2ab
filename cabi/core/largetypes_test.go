package core

import (
	"fmt"
	"slices"
	"testing"

	"github.com/isthmus-grid/isthmus/cabi/core/datatypes"
)

// The arguments of large constructors are counts, but for those that have int in the large functions, too.
func TestLargeTypes(t *testing.T) {
	joined()
	two, three := &[2]int64{2, 1}, &[2]int64{20, -8}
	ints := &[2]uintptr{typeInt, typeInt}
	sizes, subsizes, starts := &[2]int64{4, 5}, &[2]int64{2, 3}, &[2]int64{1, 2}
	cube, grid := &[3]int64{4, 5, 6}, &[3]int32{2, 1, 1}
	distribs, arguments := &[3]int32{datatypes.DistributeCyclic, datatypes.DistributeNone, datatypes.DistributeBlock}, &[3]int32{datatypes.DistributeDefault, 7, 6}
	for name, c := range map[string]struct {
		make     func(newtype uintptr) int32
		integers []int32
		counts   []int64
		types    int64
	}{
		"contiguous": {func(n uintptr) int32 { return TypeContiguousC(3, typeInt, n) }, nil, []int64{3}, 1},
		"vector":     {func(n uintptr) int32 { return TypeVectorC(2, 1, 3, typeInt, n) }, nil, []int64{2, 1, 3}, 1},
		"hvector":    {func(n uintptr) int32 { return TypeCreateHvectorC(2, 1, 20, typeInt, n) }, nil, []int64{2, 1, 20}, 1},
		"indexed": {func(n uintptr) int32 { return TypeIndexedC(2, address(two), address(three), typeInt, n, 1) },
			nil, []int64{2, 2, 1, 20, -8}, 1},
		"hindexed": {func(n uintptr) int32 { return TypeCreateHindexedC(2, address(two), address(three), typeInt, n, 1) },
			nil, []int64{2, 2, 1, 20, -8}, 1},
		"indexed block": {func(n uintptr) int32 { return TypeCreateIndexedBlockC(2, 3, address(three), typeInt, n, 1) },
			nil, []int64{2, 3, 20, -8}, 1},
		"hindexed block": {func(n uintptr) int32 { return TypeCreateHindexedBlockC(2, 3, address(three), typeInt, n) },
			nil, []int64{2, 3, 20, -8}, 1},
		"struct": {func(n uintptr) int32 {
			return TypeCreateStructC(2, address(two), address(three), address(ints), n, 1)
		}, nil, []int64{2, 2, 1, 20, -8}, 2},
		"subarray": {func(n uintptr) int32 {
			return TypeCreateSubarrayC(2, address(sizes), address(subsizes), address(starts), datatypes.OrderC, typeInt, n, 1)
		}, []int32{2, datatypes.OrderC}, []int64{4, 5, 2, 3, 1, 2}, 1},
		"darray": {func(n uintptr) int32 {
			return TypeCreateDarrayC(2, 1, 3, address(cube), address(distribs), address(arguments), address(grid), datatypes.OrderC, typeInt, n, 1)
		}, []int32{2, 1, 3, datatypes.DistributeCyclic, datatypes.DistributeNone, datatypes.DistributeBlock, datatypes.DistributeDefault, 7, 6, 2, 1, 1, datatypes.OrderC}, []int64{4, 5, 6}, 1},
		"resized": {func(n uintptr) int32 { return TypeCreateResizedC(typeInt, -4, 12, n) }, nil, []int64{-4, 12}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var d uintptr
			check(t, "constructor", c.make(address(&d)), success)
			n := new([4]int64)
			combiner := new(int32)
			check(t, "TypeGetEnvelopeC", TypeGetEnvelopeC(d, address(&n[0]), address(&n[1]), address(&n[2]), address(&n[3]), address(combiner)), success)
			if want := [4]int64{int64(len(c.integers)), 0, int64(len(c.counts)), c.types}; *n != want {
				t.Errorf("envelope %v, want %v", *n, want)
			}
			integers, counts, types := new([13]int32), new([6]int64), new([2]uintptr)
			check(t, "TypeGetContentsC", TypeGetContentsC(d, 13, 0, 6, 2, address(integers), 0, address(counts), address(types)), success)
			if !slices.Equal(integers[:len(c.integers)], c.integers) || !slices.Equal(counts[:len(c.counts)], c.counts) || types[0] != typeInt {
				t.Errorf("contents %v, %v, %v", *integers, *counts, *types)
			}
			check(t, "TypeGetEnvelope", TypeGetEnvelope(d, 0, 0, 0, 0), errType)
			check(t, "TypeGetContents", TypeGetContents(d, 12, 12, 2, 0, 0, 0), errType)
			check(t, fmt.Sprint("room for ", len(c.counts)-1), TypeGetContentsC(d, 13, 0, int64(len(c.counts)-1), 2, 0, 0, 0, 0), errArg)
			check(t, "TypeFree", TypeFree(address(&d)), success)
		})
	}
}
