package is

import (
	"github.com/isthmus-grid/isthmus/examples/npb"
	"github.com/isthmus-grid/isthmus/examples/npb/random"
)

const (
	seed       = 314159265
	iterations = 10
	tests      = 5 // keys whose rank is checked in each iteration
)

// problem is a class: how many keys, how large, and the official ranks.
type problem struct {
	logKeys, logMax, logBuckets int

	// at[i] is the place, in the whole array, of the i-th test key; rank[i] is
	// where the key's official rank starts, and drift how it moves: every
	// iteration changes two keys, so a rank rises or falls by one each time.
	at    [tests]int
	rank  [tests]int64
	drift [tests]drift
}

// drift is slope*iteration + offset.
type drift struct{ slope, offset int64 }

var up, down = drift{1, 0}, drift{-1, 0}

var problems = map[npb.Class]problem{
	"S": {16, 11, 9,
		[tests]int{48427, 17148, 23627, 62548, 4431},
		[tests]int64{0, 18, 346, 64917, 65463},
		[tests]drift{up, up, up, down, down}},
	"W": {20, 16, 10,
		[tests]int{357773, 934767, 875723, 898999, 404505},
		[tests]int64{1249, 11698, 1039987, 1043896, 1048018},
		[tests]drift{{1, -2}, {1, -2}, down, down, down}},
	"A": {23, 19, 10,
		[tests]int{2112377, 662041, 5336171, 3642833, 4250760},
		[tests]int64{104, 17523, 123928, 8288932, 8388264},
		[tests]drift{{1, -1}, {1, -1}, {1, -1}, {-1, 1}, {-1, 1}}},
	"B": {25, 21, 10,
		[tests]int{41869, 812306, 5102857, 18232239, 26860214},
		[tests]int64{33422937, 10244, 59149, 33135281, 99},
		[tests]drift{down, up, up, down, up}},
	"C": {27, 23, 10,
		[tests]int{44172927, 72999161, 74326391, 129606274, 21736814},
		[tests]int64{61147, 882988, 266290, 133997595, 133525895},
		[tests]drift{up, up, up, down, down}},
}

// Classes lists the classes that Run accepts, smallest first.
var Classes = []npb.Class{"S", "W", "A", "B", "C"}

func (p problem) keys() int   { return 1 << p.logKeys }
func (p problem) maxKey() int { return 1 << p.logMax }

// wantRank is the official rank of test key i at an iteration.
func (p problem) wantRank(i, iteration int) int64 {
	return p.rank[i] + p.drift[i].slope*int64(iteration) + p.drift[i].offset
}

// makeKeys returns keys first..end-1 of the whole array: each is the sum of
// four uniform deviates, scaled to maxKey, so that most lie in the middle. The
// arithmetic is exact: four 46-bit numbers need 48 bits.
func (p problem) makeKeys(first, end int) []int32 {
	g := random.New(seed)
	g.Skip(4 * uint64(first))
	shift := random.Bits + 2 - p.logMax
	keys := make([]int32, end-first)
	for i := range keys {
		keys[i] = int32((g.Next() + g.Next() + g.Next() + g.Next()) >> shift)
	}
	return keys
}

// change makes the two changes of an iteration, if the keys concerned are
// among those starting at place first.
func (p problem) change(keys []int32, first, iteration int) {
	set := func(place int, key int32) {
		if i := place - first; i >= 0 && i < len(keys) {
			keys[i] = key
		}
	}
	set(iteration, int32(iteration))
	set(iteration+iterations, int32(p.maxKey()-iteration))
}
