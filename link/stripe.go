package link

import (
	"time"

	"github.com/isthmus-grid/isthmus/link/resume"
	"github.com/isthmus-grid/isthmus/overlay"
)

// This file decides over how many carriers a link is striped, and how the bytes are distributed
// among them. It uses no clock and no socket: striping.go samples the stream every sampleEvery, and
// carries out what is decided here.
//
// More carriers help where one does not fill the path: when losses keep its window small, and over
// relays that are each slower than the path. They do not help a flow that is short, thin or limited
// by the processes at its ends, nor one on a path that is full or in a tunnel, where all carriers
// share one window. So one more carrier is tried when the carriers have held a flow up for a while,
// and kept if the flow gained from it, or becomes slower by as much without it: a flow may also
// have become slower for another reason meanwhile.
const (
	// MostCarriers is the maximum number of carriers that a link adds by itself.
	MostCarriers = 8

	// MaxForced is the maximum number that can be configured. It leaves room for standby carriers
	// and for replacements.
	MaxForced = resume.MaxCarriers / 2

	sampleEvery = 500 * time.Millisecond

	minRTT     = 5 * time.Millisecond // below, a carrier's window is hardly ever the limit
	minShare   = 64 << 10             // bytes that must be in flight for each carrier that there would be,
	lossyShare = 4 << 10              // and where losses keep windows small, as they may on long paths
	longRTT    = 100 * time.Millisecond

	settling   = 2  // samples to ignore after a change: the new carrier starts slowly
	longSettle = 20 // plus as many round trips: a flow starts slowly,
	lossSettle = 5  // until it loses data
	ofBase     = 4  // samples that make the base rate before a trial
	ofTrial    = 3  // samples after which a trial may have succeeded,
	ofFailure  = 8  // and after which it has failed
	gainPart   = 10 // a gain is at least one part in so many

	firstWait = 30 * time.Second / sampleEvery // samples after a carrier that gained nothing; doubles
	maxWait   = time.Hour / sampleEvery
	idleAfter = 10 * time.Second / sampleEvery
)

// configuredCarriers returns the configured number of carriers of a link by a technique, or 0 if
// the link decides: the owner's value, or else one where further carriers would share a tunnel.
func configuredCarriers(owner int, class overlay.Technique) int {
	if owner == 0 && oneTunnel(class) {
		return 1
	}
	return owner
}

// A sample is what a link measured since the previous sample.
type sample struct {
	bytes    uint64        // that arrived in sampleEvery, both directions
	held     bool          // more could have been sent, had the carriers taken it
	rtt      time.Duration // of the path
	lossy    bool          // a carrier loses data that no queue dropped
	carriers int           // in use now
}

// A verdict is the action that follows from a sample.
type verdict uint8

const (
	noChange     verdict = iota
	addCarrier           // add a carrier
	removeNewest         // remove the newest one
	keepOne              // remove all but one
)

// A striper decides for one link.
type striper struct {
	carriers int  // at the last sample
	trying   bool // one more than from is on trial
	from     int
	base     float64
	tried    float64   // rate of a trial that failed; to be compared with the rate without the carrier
	rates    []float64 // of the samples since the last change; bytes per sample

	skip    int           // samples to ignore
	waiting time.Duration // samples until the next trial
	wait    time.Duration // how long the next wait is
	idle    time.Duration // samples
}

// next processes a sample.
func (s *striper) next(x sample) verdict {
	if s.waiting > 0 {
		s.waiting--
	}
	died := s.trying && x.carriers <= s.from
	if died {
		s.failed()
	}
	if died || x.carriers != s.carriers {
		s.changed(x)
		return noChange
	}
	if !x.held || x.rtt < minRTT {
		return s.quiet(x)
	}
	s.idle = 0
	if s.skip > 0 {
		s.skip--
		return noChange
	}
	s.rates = append(s.rates, float64(x.bytes))
	if s.trying {
		return s.judge(x)
	}
	if len(s.rates) > ofBase {
		s.rates = s.rates[1:]
	}
	return s.consider(x)
}

// changed restarts the measurement with the current number of carriers.
func (s *striper) changed(x sample) {
	s.carriers = x.carriers
	s.rates = s.rates[:0]
	trips := time.Duration(longSettle)
	if x.lossy {
		trips = lossSettle
	}
	s.skip = max(settling, int(trips*x.rtt/sampleEvery))
}

// quiet is next for a link that is not held up.
func (s *striper) quiet(x sample) verdict {
	if !s.trying {
		s.rates = s.rates[:0]
	}
	if s.idle++; s.idle < idleAfter {
		return noChange
	}
	s.idle, s.trying, s.tried = 0, false, 0
	if x.carriers > 1 {
		return keepOne
	}
	return noChange
}

// consider decides whether to try another carrier.
func (s *striper) consider(x sample) verdict {
	if len(s.rates) < ofBase || x.carriers >= MostCarriers || x.carriers < 1 {
		return noChange
	}
	before, after := mean(s.rates[:ofBase/2]), mean(s.rates[ofBase/2:])
	if after > gained(before) {
		return noChange // the rate is still growing
	}
	tried := s.tried
	s.tried = 0
	if s.waiting > 0 && tried < gained(mean(s.rates)) {
		return noChange
	}
	s.base = mean(s.rates)
	underWay := s.base * float64(x.rtt) / float64(sampleEvery)
	share := float64(minShare)
	if x.lossy || x.rtt >= longRTT {
		share = lossyShare
	}
	if underWay < share*float64(x.carriers+1) {
		return noChange
	}
	s.trying, s.from = true, x.carriers
	return addCarrier
}

// judge evaluates a carrier on trial.
func (s *striper) judge(x sample) verdict {
	switch rate := mean(s.rates); {
	case len(s.rates) >= ofTrial && rate >= gained(s.base):
		s.trying, s.wait, s.waiting = false, 0, 0
		s.rates = append(s.rates[:0], s.rates[max(0, len(s.rates)-ofBase):]...)
		return s.consider(x)
	case len(s.rates) >= ofFailure:
		s.failed()
		s.tried = rate
		return removeNewest
	}
	return noChange
}

// failed records that one more carrier was not available, or gained nothing.
func (s *striper) failed() {
	s.trying, s.tried = false, 0
	s.rates = s.rates[:0]
	s.wait = min(max(2*s.wait, firstWait), maxWait)
	s.waiting = s.wait
}

func gained(base float64) float64 { return base * (1 + 1.0/gainPart) }

func mean(rates []float64) float64 {
	sum := 0.0
	for _, r := range rates {
		sum += r
	}
	return sum / float64(len(rates))
}

// Weights are fractions of fullWeight, that of the fastest carrier. They change when one is off by
// more than a quarter.
const (
	fullWeight  = 1024
	weightSlack = 4
)

// weigh returns weights in proportion to what each carrier brought, or false if the current ones
// are close enough. A carrier that brought next to nothing keeps a small weight, so that an
// improvement becomes visible.
func weigh(now []uint32, brought []uint64) ([]uint32, bool) {
	var most, heaviest uint64
	for i, b := range brought {
		most, heaviest = max(most, b), max(heaviest, uint64(now[i]))
	}
	if most == 0 {
		return nil, false
	}
	weights := make([]uint32, len(now))
	change := false
	for i, b := range brought {
		weights[i] = uint32(max(b*fullWeight/most, fullWeight/64))
		was := uint64(now[i]) * fullWeight / max(heaviest, 1)
		off := max(was, uint64(weights[i])) - min(was, uint64(weights[i]))
		change = change || off*weightSlack > was
	}
	return weights, change
}
