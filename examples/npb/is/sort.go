package is

import (
	"context"
	"fmt"
	"time"

	"github.com/isthmus-grid/isthmus/examples/npb"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// sorter is one rank's part of the sort. The rank holds keys first, first+1,
// ... of the whole array, and after an iteration ranks all keys, of everyone,
// that lie in its range of buckets. A bucket is all keys with the same leading
// bits.
type sorter struct {
	comm  *mpilib.Comm
	p     problem
	first int
	keys  []int32

	bucketed []int32 // keys, ordered by bucket
	received []int32 // every key of our range; grows to what an iteration needs
	below    []int64 // below[k-low]: how many keys are smaller than k, of all ranks; one more at the end
	low      int     // smallest key of our range

	found      []int64 // tests numbers an iteration, see findTestRanks
	inMessages time.Duration
}

func newSorter(comm *mpilib.Comm, p problem) *sorter {
	first := comm.Rank() * p.keys() / comm.Size()
	end := (comm.Rank() + 1) * p.keys() / comm.Size()
	s := &sorter{comm: comm, p: p, first: first, keys: p.makeKeys(first, end)}
	s.bucketed = make([]int32, len(s.keys))
	return s
}

// message adds the time of one operation to that of all.
func (s *sorter) message(operation func() error) error {
	start := time.Now()
	err := operation()
	s.inMessages += time.Since(start)
	return err
}

// iterate changes two keys and ranks all.
func (s *sorter) iterate(ctx context.Context, iteration int) error {
	s.p.change(s.keys, s.first, iteration)
	buckets := 1 << s.p.logBuckets

	// Bucket sizes, and after them the test keys, each from its owner.
	counts := make([]int64, buckets+tests)
	s.countBuckets(counts[:buckets])
	for i, place := range s.p.at {
		if j := place - s.first; j >= 0 && j < len(s.keys) {
			counts[buckets+i] = int64(s.keys[j])
		}
	}
	totals := make([]int64, len(counts))
	err := s.message(func() error { return mpilib.Allreduce(ctx, s.comm, counts, totals, mpilib.Sum) })
	if err != nil {
		return fmt.Errorf("bucket sizes: %w", err)
	}
	s.orderByBucket(counts[:buckets])
	bounds := deal(totals[:buckets], s.comm.Size())
	if err := s.exchange(ctx, counts[:buckets], bounds); err != nil {
		return err
	}
	s.rankRange(totals[:buckets], bounds)
	s.findTestRanks(totals[buckets:])
	return nil
}

func (s *sorter) bucketShift() int { return s.p.logMax - s.p.logBuckets }

func (s *sorter) countBuckets(counts []int64) {
	shift := s.bucketShift()
	for _, k := range s.keys {
		counts[k>>shift]++
	}
}

func (s *sorter) orderByBucket(counts []int64) {
	next := make([]int64, len(counts))
	for b := 1; b < len(counts); b++ {
		next[b] = next[b-1] + counts[b-1]
	}
	shift := s.bucketShift()
	for _, k := range s.keys {
		b := k >> shift
		s.bucketed[next[b]] = k
		next[b]++
	}
}

// deal gives each of p ranks a contiguous range of buckets: rank r has buckets
// bounds[r] to bounds[r+1]-1. It cuts at the first place where the ranks
// before have their even share of the keys; ranges may be empty.
func deal(totals []int64, p int) (bounds []int) {
	var all int64
	for _, n := range totals {
		all += n
	}
	bounds = make([]int, p+1)
	bounds[p] = len(totals)
	var before int64
	b := 0
	for r := 1; r < p; r++ {
		for ; before < int64(r)*all/int64(p); b++ {
			before += totals[b]
		}
		bounds[r] = b
	}
	return bounds
}

// exchange sends every key to the rank whose range it is in.
func (s *sorter) exchange(ctx context.Context, counts []int64, bounds []int) error {
	p := s.comm.Size()
	sizes := make([]int64, p)
	for r := range p {
		for _, n := range counts[bounds[r]:bounds[r+1]] {
			sizes[r] += n
		}
	}
	incoming := make([]int64, p)
	err := s.message(func() error { return mpilib.Alltoall(ctx, s.comm, sizes, incoming) })
	if err != nil {
		return fmt.Errorf("block sizes: %w", err)
	}
	scounts, sdispls, _ := blocks(sizes)
	rcounts, rdispls, total := blocks(incoming)
	if cap(s.received) < total {
		s.received = make([]int32, total+total/8)
	}
	s.received = s.received[:total]
	err = s.message(func() error {
		return mpilib.Alltoallv(ctx, s.comm, s.bucketed, scounts, sdispls, s.received, rcounts, rdispls)
	})
	if err != nil {
		return fmt.Errorf("keys: %w", err)
	}
	return nil
}

// blocks lays blocks of the given sizes one after another.
func blocks(sizes []int64) (counts, displs []int, total int) {
	counts, displs = make([]int, len(sizes)), make([]int, len(sizes))
	for r, n := range sizes {
		counts[r], displs[r] = int(n), total
		total += int(n)
	}
	return counts, displs, total
}

// rankRange computes below for the keys of our range: a counting sort's
// counts, summed up, on top of what all lower ranges hold.
func (s *sorter) rankRange(totals []int64, bounds []int) {
	mine := s.comm.Rank()
	shift := s.bucketShift()
	s.low = bounds[mine] << shift
	width := (bounds[mine+1] - bounds[mine]) << shift
	if cap(s.below) < width+1 {
		s.below = make([]int64, width+1)
	}
	s.below = s.below[:width+1]
	clear(s.below)
	for _, n := range totals[:bounds[mine]] {
		s.below[0] += n
	}
	// Key k counts towards the place after it; summing does the rest.
	for _, k := range s.received {
		s.below[int(k)-s.low+1]++
	}
	for i := 1; i <= width; i++ {
		s.below[i] += s.below[i-1]
	}
}

// findTestRanks notes the ranks of the test keys. Exactly one process has each
// key in its range and notes something other than zero: the rank plus one, so
// that a key which no rank has ends as -1 when verify adds the notes up.
func (s *sorter) findTestRanks(keys []int64) {
	for _, k := range keys {
		var note int64
		if j := int(k) - s.low; j >= 0 && j < len(s.below)-1 {
			note = s.below[j] + 1
		}
		s.found = append(s.found, note)
	}
}

// verify compares the test ranks of all iterations with the official ones, and
// makes the full test: keys put at the places that below names must be a
// sorted array of everything there was.
func (s *sorter) verify(ctx context.Context) ([]npb.Check, error) {
	ranks := make([]int64, len(s.found))
	if err := mpilib.Allreduce(ctx, s.comm, s.found, ranks, mpilib.Sum); err != nil {
		return nil, fmt.Errorf("test ranks: %w", err)
	}
	var checks []npb.Check
	for j, n := range ranks {
		it, i := j/tests+1, j%tests
		name := fmt.Sprintf("iteration %d, rank of key %d", it, i+1)
		checks = append(checks, npb.NewCheck(name, float64(n-1), float64(s.p.wantRank(i, it)), 0))
	}
	ends := make([]edge, s.comm.Size())
	if err := mpilib.Allgather(ctx, s.comm, []edge{s.sorted()}, ends); err != nil {
		return nil, fmt.Errorf("sorted keys: %w", err)
	}
	disorder, keys, sum := judge(ends)
	before, all := []int64{sumOf(s.keys)}, []int64{0}
	if err := mpilib.Allreduce(ctx, s.comm, before, all, mpilib.Sum); err != nil {
		return nil, fmt.Errorf("sum of keys: %w", err)
	}
	return append(checks,
		npb.NewCheck("keys out of order", float64(disorder), 0, 0),
		npb.NewCheck("keys sorted", float64(keys), float64(s.p.keys()), 0),
		npb.NewCheck("sum of keys", float64(sum), float64(all[0]), 0)), nil
}

// edge is what the others must know of a rank's sorted keys. Fields are of one
// type, so that the struct has no gaps.
type edge struct {
	Keys, Sum int64
	Disorder  int64 // neighbours in the wrong order
	Low, High int64 // first and last key, if there are keys
}

// sorted puts the received keys in the places that their ranks give them.
func (s *sorter) sorted() edge {
	next := make([]int64, len(s.below))
	copy(next, s.below)
	out := make([]int32, len(s.received))
	for _, k := range s.received {
		place := &next[int(k)-s.low]
		out[*place-s.below[0]] = k
		*place++
	}
	e := edge{Keys: int64(len(out)), Sum: sumOf(out)}
	if len(out) > 0 {
		e.Low, e.High = int64(out[0]), int64(out[len(out)-1])
	}
	for i := 1; i < len(out); i++ {
		if out[i-1] > out[i] {
			e.Disorder++
		}
	}
	return e
}

// judge puts the ranks' edges side by side.
func judge(ends []edge) (disorder, keys, sum int64) {
	last := int64(-1)
	for _, e := range ends {
		disorder += e.Disorder
		keys += e.Keys
		sum += e.Sum
		if e.Keys == 0 {
			continue
		}
		if e.Low < last {
			disorder++
		}
		last = e.High
	}
	return disorder, keys, sum
}

func sumOf(keys []int32) (sum int64) {
	for _, k := range keys {
		sum += int64(k)
	}
	return sum
}
