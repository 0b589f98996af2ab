package faults

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

const testSeed = 42

// stream returns the first blocks of a stream.
func stream(blocks uint64) []byte {
	var all []byte
	var b [blockLen]byte
	for n := range blocks {
		fill(&b, testSeed, n)
		all = append(all, b[:]...)
	}
	return all
}

// check makes a checker take data in pieces of random sizes.
func check(data []byte, random *rand.Rand) *checker {
	c := newChecker(testSeed)
	for len(data) > 0 {
		n := min(len(data), 1+random.IntN(3*blockLen))
		if random.IntN(4) == 0 {
			n = 1
		}
		c.take(data[:n])
		data = data[n:]
	}
	return c
}

func TestCheckerCounts(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	whole := stream(20)
	for range 60 {
		from := random.IntN(len(whole) - 8*blockLen)
		n := 1 + random.IntN(4*blockLen)
		for _, kind := range []string{"whole", "lost", "doubled", "changed"} {
			data, lost, doubled := slices.Clone(whole), 0, 0
			switch kind {
			case "lost":
				data, lost = slices.Delete(data, from, from+n), n
			case "doubled":
				data, doubled = slices.Insert(data, from+n, data[from:from+n]...), n
			case "changed":
				data[from] ^= 1
			}
			c := check(data, random)
			name := fmt.Sprintf("%s: %d bytes at %d", kind, n, from)
			// Only what follows from whole blocks is known: for a duplicated piece that contains a
			// header, the second copy counts as well.
			if int(c.lost)-int(c.doubled) != lost-doubled {
				t.Fatalf("%s: lost %d and doubled %d bytes", name, c.lost, c.doubled)
			}
			if int(c.received) != len(data) {
				t.Fatalf("%s: received %d of %d bytes", name, c.received, len(data))
			}
			if (c.fault == "") != (kind == "whole") {
				t.Fatalf("%s: fault %q", name, c.fault)
			}
			if kind == "changed" && !strings.HasPrefix(c.fault, fmt.Sprintf("byte %d ", from)) {
				t.Fatalf("%s: fault %q", name, c.fault)
			}
			if c.hunting || c.next != 20 || c.at != 0 {
				t.Fatalf("%s: ended in block %d at %d, hunting: %v", name, c.next, c.at, c.hunting)
			}
		}
	}
}

func TestDigest(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	a, b := check(stream(5), random), check(stream(5), random)
	if a.digest() != b.digest() {
		t.Error("equal streams have different digests")
	}
	if c := check(stream(4), random); c.digest() == a.digest() {
		t.Error("different streams have the same digest")
	}
}

func BenchmarkFill(b *testing.B) {
	var block [blockLen]byte
	b.SetBytes(blockLen)
	for i := 0; b.Loop(); i++ {
		fill(&block, testSeed, uint64(i))
	}
}

func BenchmarkCheck(b *testing.B) {
	data := stream(64)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		newChecker(testSeed).take(data)
	}
}
