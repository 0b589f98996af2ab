package protocol

import (
	"math/rand/v2"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/testload"
)

// randomProgram returns a program of a process among several.
func randomProgram(random *rand.Rand, rank, procs, steps int) (program []step) {
	sizes := []int{0, 1, 20, 40, 41, 60, 100}
	for i := range steps {
		s := step{peer: random.IntN(procs), context: uint32(random.IntN(2)), tag: random.IntN(2), size: sizes[random.IntN(len(sizes))]}
		switch k := random.IntN(16); {
		case k < 6:
			s.kind = 's'
		case k < 7:
			s.kind = 'S'
		case k < 13:
			s.kind = 'r'
			if s.size = 100; random.IntN(8) == 0 {
				s.size = 30
			}
			if random.IntN(3) == 0 {
				s.peer = AnySource
			}
			if random.IntN(3) == 0 {
				s.tag = AnyTag
			}
		case k < 14:
			s.kind, s.size = 'p', 100
			if random.IntN(2) == 0 {
				s.peer = AnySource
			}
		case i == 0:
			continue
		case k < 15:
			s.kind, s.which = 'c', random.IntN(i)
		default:
			s.kind, s.which = 'g', random.IntN(i)
		}
		program = append(program, s)
	}
	for i := range program { // which names a step that is earlier
		if program[i].which >= i {
			program[i].which = max(0, i-1)
		}
	}
	return program
}

// Two and three processes do anything in any order, and lose each other at any moment. Every message is
// received once, in the standard's order; credit is neither lost nor exceeded; every operation ends once.
func TestRandomInterleavings(t *testing.T) {
	rounds := 1_500
	if testload.Full() {
		rounds = 20_000
	}
	for seed := range uint64(rounds) {
		random := rand.New(rand.NewPCG(seed, 49))
		procs := 2 + random.IntN(2)
		programs := make([][]step, procs)
		for rank := range programs {
			programs[rank] = randomProgram(random, rank, procs, random.IntN(10))
		}
		m := newModel(random.IntN, 240, programs...)
		m.lend = random.IntN(2) == 0
		m.lossy, m.healthy = max(0, random.IntN(4)-1), random.IntN(60)
		if wrong := m.try(); wrong != "" {
			t.Fatalf("seed %d: %s", seed, wrong)
		}
	}
}

// Of small programs every interleaving is played, or without the tag "system" some random ones.
func TestEveryInterleaving(t *testing.T) {
	for name, tc := range map[string]struct {
		credit   int
		programs [][]step
		lossy    int
	}{
		"eager, early or late": {200, [][]step{
			{{kind: 's', peer: 1, size: 3}, {kind: 's', peer: 1, size: 4}},
			{{kind: 'r', peer: 0, tag: AnyTag, size: 9}}}, 0},
		"a rendezvous with a head": {100, [][]step{
			{{kind: 's', peer: 1, size: 50}},
			{{kind: 'r', peer: 0, size: 50}}}, 0},
		"a loss": {100, [][]step{
			{{kind: 's', peer: 1, size: 9}},
			{{kind: 'r', peer: 0, size: 50}}}, 1},
		"withdrawn or received": {0, [][]step{
			{{kind: 'S', peer: 1, size: 9}, {kind: 'c', which: 0}},
			{{kind: 'r', peer: AnySource, size: 50}}}, 0},
		"given up or received": {0, [][]step{
			{{kind: 's', peer: 1, size: 20}, {kind: 'g', which: 0}},
			{{kind: 'r', peer: AnySource, size: 50}}}, 0},
		"a head that is given up": {60, [][]step{
			{{kind: 's', peer: 1, size: 9}, {kind: 'g', which: 0}},
			{{kind: 'r', peer: AnySource, size: 50}}}, 0},
		"more than may be pending": {0, [][]step{
			{{kind: 's', peer: 1, size: 0}, {kind: 's', peer: 1, size: 1}},
			{{kind: 'r', peer: 0, size: 2}}}, 0},
		"a receive that is cancelled": {80, [][]step{
			{{kind: 's', peer: 1, size: 9}},
			{{kind: 'r', peer: 0, size: 9}, {kind: 'c', which: 0}}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			play := func(choose func(n int) int) string {
				m := newModel(choose, tc.credit, tc.programs...)
				m.plain, m.lossy = true, tc.lossy
				for _, p := range m.procs {
					p.core.maxPending = 1
				}
				return m.try()
			}
			if !testload.Full() {
				for seed := range uint64(300) {
					if wrong := play(rand.New(rand.NewPCG(seed, 50)).IntN); wrong != "" {
						t.Fatalf("seed %d: %s", seed, wrong)
					}
				}
				return
			}
			const most = 100_000
			var path, width []int // the choices of a run, and of how many each was
			runs := 0
			for more := true; more && runs < most; runs++ {
				at := 0
				wrong := play(func(n int) int {
					if at == len(path) {
						path, width = append(path, 0), append(width, n)
					}
					at++
					return path[at-1]
				})
				if wrong != "" {
					t.Fatalf("choices %v: %s", path, wrong)
				}
				for more = false; len(path) > 0 && !more; { // the next path
					last := len(path) - 1
					if path[last]++; path[last] < width[last] {
						more = true
					} else {
						path, width = path[:last], width[:last]
					}
				}
			}
			t.Logf("%d interleavings", runs)
			if len(path) > 0 {
				t.Errorf("there are more than %d", runs)
			}
		})
	}
}
