package scale

import (
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/bench"
)

var small = Options{Links: 50, Rate: 80e6, For: time.Second, Helpers: 10, Processes: 30}

func TestCheck(t *testing.T) {
	if err := small.Check(); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*Options){
		"9999 links":       func(o *Options) { o.Links = 9999 },
		"need a rate":      func(o *Options) { o.Rate = 0 },
		"counting for 0s":  func(o *Options) { o.For = 0 },
		"-1 helpers":       func(o *Options) { o.Helpers = -1 },
		"5 processes of":   func(o *Options) { o.Processes = 5 },
		"nothing to measu": func(o *Options) { o.Links, o.Helpers = 0, 0 },
	} {
		o := small
		change(&o)
		if err := o.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", o, err, want)
		}
	}
}

// The rows judge what a link takes and who got how much.
func TestRows(t *testing.T) {
	f := &proxyFigures{
		before: use{rss: 10e6, descriptors: 20}, idle: use{rss: 10e6 + 2*60<<10, descriptors: 24},
		busy:      use{rss: 10e6 + 2*80<<10, descriptors: 28, pipes: 4},
		linkBytes: []float64{1e6, 3e6}, took: time.Second,
	}
	o := small
	o.Links = 2
	for figure, want := range map[string]struct {
		value float64
		met   int // 1 and 0, or -1 without a target
	}{
		"fairness": {0.8, 0}, "least_share": {0.5, -1}, "throughput": {32, -1},
		"memory_idle": {60 << 10, 1}, "memory_busy": {80 << 10, 0},
		"pipes_busy": {2, -1}, "descriptors_idle": {2, -1}, "descriptors_busy": {4, -1},
	} {
		for _, r := range f.rows(o) {
			if r.Figure != figure {
				continue
			}
			met := -1
			if r.Met != nil {
				met = map[bool]int{true: 1}[*r.Met]
			}
			if bench.Jain([]float64{r.Value, want.value}) < 0.999999 || met != want.met {
				t.Errorf("%s: %v, met %d; want %+v", figure, r.Value, met, want)
			}
		}
	}
}
