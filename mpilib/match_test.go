package mpilib

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// Against a dumb version: whatever comes and is posted in whatever order, each
// receive gets the oldest message it may, each message the oldest receive.
func TestMatcher(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 1))
	for round := range 2000 {
		var m matcher
		var posted []*Request
		var kept []*message
		for range 40 {
			source, tag := rng.IntN(3), rng.IntN(3)
			if rng.IntN(2) == 0 {
				want := slices.IndexFunc(posted, func(r *Request) bool { return matches(r.global, r.what.tag, source, tag) })
				got := m.arrive(source, tag)
				if want < 0 != (got == nil) || want >= 0 && got != posted[want] {
					t.Fatalf("seed %d, round %d: message %d/%d went to %v", seed, round, source, tag, got)
				}
				if want >= 0 {
					posted = slices.Delete(posted, want, want+1)
					continue
				}
				msg := &message{source: source, tag: tag}
				m.unexpected, kept = append(m.unexpected, msg), append(kept, msg)
				continue
			}
			source, tag = source-rng.IntN(2)*(source+1), tag-rng.IntN(2)*(tag+1) // now and then a wildcard
			want := slices.IndexFunc(kept, func(msg *message) bool { return matches(source, tag, msg.source, msg.tag) })
			peeked := m.peek(source, tag)
			got := m.take(source, tag)
			if got != peeked || want < 0 != (got == nil) || want >= 0 && got != kept[want] {
				t.Fatalf("seed %d, round %d: receive %d/%d got %v", seed, round, source, tag, got)
			}
			if want >= 0 {
				kept = slices.Delete(kept, want, want+1)
				continue
			}
			r := &Request{global: source, what: transfer{tag: tag}}
			m.posted, posted = append(m.posted, r), append(posted, r)
		}
	}
}

func TestWildcards(t *testing.T) {
	for _, tc := range []struct {
		wantSource, wantTag, source, tag int
		match                            bool
	}{
		{1, 2, 1, 2, true}, {1, 2, 0, 2, false}, {1, 2, 1, 3, false},
		{AnySource, 2, 5, 2, true}, {AnySource, 2, 5, 3, false},
		{1, AnyTag, 1, 9, true}, {1, AnyTag, 2, 9, false}, {AnySource, AnyTag, 0, 0, true},
	} {
		if got := matches(tc.wantSource, tc.wantTag, tc.source, tc.tag); got != tc.match {
			t.Error(fmt.Sprintf("%+v", tc), got)
		}
	}
}
