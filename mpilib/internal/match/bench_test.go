package match

import (
	"fmt"
	"testing"
)

// Posting a receive that a message finds by its source and tag, among other receives.
func BenchmarkPostArrive(b *testing.B) {
	for _, queued := range []int{1, 100, 10_000} {
		for _, c := range []struct {
			name        string
			source, tag int32
		}{
			{"exact", 3, 7}, {"any-source", AnySource, 7}, {"any-tag", 3, AnyTag}, {"any", AnySource, AnyTag},
		} {
			b.Run(fmt.Sprintf("%s/%d", c.name, queued), func(b *testing.B) {
				var t table
				for i := 1; i < queued; i++ { // others, of three kinds, so that all are searched
					s, g := int32(10+i%100), int32(10+i/100)
					switch i % 8 {
					case 1:
						s = AnySource
					case 2:
						g = AnyTag
					}
					t.Post(posted(s, g))
				}
				r := posted(c.source, c.tag)
				t.Post(r)
				b.ReportAllocs()
				for b.Loop() {
					if t.Arrive(3, 7) != r {
						b.Fatal("lost")
					}
					t.Post(r)
				}
			})
		}
	}
}

// Keeping a message that a receive finds by its source and tag, among other messages.
func BenchmarkKeepTake(b *testing.B) {
	for _, queued := range []int{1, 100, 10_000} {
		for _, c := range []struct {
			name        string
			source, tag int32
		}{
			{"exact", 3, 7}, {"any-source", AnySource, 7}, {"any-tag", 3, AnyTag}, {"any", AnySource, AnyTag},
		} {
			b.Run(fmt.Sprintf("%s/%d", c.name, queued), func(b *testing.B) {
				var t table
				m := kept(3, 7)
				t.Keep(m)
				for i := 1; i < queued; i++ {
					t.Keep(kept(int32(10+i%100), int32(10+i/100)))
				}
				b.ReportAllocs()
				for b.Loop() {
					m := t.Take(c.source, c.tag)
					if m == nil {
						b.Fatal("lost")
					}
					t.Keep(m)
				}
			})
		}
	}
}

// A burst of receives, each with a tag of its own, matched in reverse order: the worst case for a
// list.
func BenchmarkBurst(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var t table
			rs := make([]*receive, n)
			for i := range rs {
				rs[i] = posted(3, int32(i))
			}
			b.ReportAllocs()
			for b.Loop() {
				for _, r := range rs {
					t.Post(r)
				}
				for i := range rs {
					if t.Arrive(3, int32(n-1-i)) == nil {
						b.Fatal("lost")
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/message")
		})
	}
}
