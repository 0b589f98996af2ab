package metrics

import (
	"cmp"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// MaxSeries bounds the series of one family whose labels are sites, projects or other names whose
// number grows with the grid. Those with the greatest values are shown by name, the rest as one
// with the label Other.
const MaxSeries = 500

// Other replaces all names beyond MaxSeries.
const Other = "other"

// A Sample is one value with its labels.
type Sample struct {
	Labels []string
	Value  float64
}

// Bound returns at most limit of the samples and, if there are more, one that is the sum of the
// rest, with Other in each label; a sample that has these labels already belongs to the rest. The
// choice among equal ones is stable from scrape to scrape. It sorts samples.
func Bound(samples []Sample, limit int) []Sample {
	if len(samples) <= limit {
		return samples
	}
	slices.SortStableFunc(samples, func(a, b Sample) int {
		if c := cmp.Compare(b.Value, a.Value); c != 0 {
			return c
		}
		return slices.Compare(a.Labels, b.Labels)
	})
	rest := Sample{Labels: slices.Repeat([]string{Other}, len(samples[0].Labels))}
	var named []Sample
	for _, s := range samples {
		if len(named) == limit || slices.Equal(s.Labels, rest.Labels) {
			rest.Value += s.Value
		} else {
			named = append(named, s)
		}
	}
	return append(named, rest)
}

// SamplesOf returns a sample for each key of a map, which is its only label.
func SamplesOf[K ~string, N number](values map[K]N) (all []Sample) {
	for k, n := range values {
		all = append(all, Sample{[]string{string(k)}, float64(n)})
	}
	return all
}

// PutBounded puts at most MaxSeries samples, and one for the rest, into a family. It is for values
// whose sum is meaningful.
func (w Writer) PutBounded(f *Family, samples []Sample) {
	for _, s := range Bound(samples, MaxSeries) {
		w.Put(f, s.Value, s.Labels...)
	}
}

// clean repairs labels that are not UTF-8, which Prometheus would refuse.
func clean(labels []string) []string {
	for i, l := range labels {
		labels[i] = strings.ToValidUTF8(l, "\uFFFD")
	}
	return labels
}

// setupBounds are the upper bounds of a Distribution's classes, in seconds: from a dial within a
// machine room to a relay that nearly timed out.
var setupBounds = [...]float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15}

// A Distribution counts durations by class. The zero value is ready; it is safe for concurrent use.
type Distribution struct {
	class [len(setupBounds) + 1]atomic.Uint64
	nanos atomic.Uint64
}

// Observe counts one duration.
func (d *Distribution) Observe(took time.Duration) {
	i, _ := slices.BinarySearch(setupBounds[:], took.Seconds())
	d.class[i].Add(1)
	d.nanos.Add(uint64(max(took, 0)))
}

// read returns the distribution in cumulative classes, as Prometheus requires.
func (d *Distribution) read() (count uint64, sum float64, buckets map[float64]uint64) {
	buckets = make(map[float64]uint64, len(setupBounds))
	for i := range d.class {
		count += d.class[i].Load()
		if i < len(setupBounds) {
			buckets[setupBounds[i]] = count
		}
	}
	return count, time.Duration(d.nanos.Load()).Seconds(), buckets
}
