package faults

import (
	"fmt"
	"strings"
	"time"
)

// Bounds for a link.
const (
	stallBound = time.Second // while another path exists, plus stallRTTs of the longer path
	stallRTTs  = 4

	returnBound = 60 * time.Second // from the return of the best path until it is used
	busyBound   = 0.3              // of a processor, when nothing is left to do
)

// A Cell is the outcome for one technique and one cut. Times are in milliseconds.
type Cell struct {
	Technique string `json:"technique"`
	Cut       string `json:"cut"`

	// Hit is the effect of the cut on the carrier: "kills", "perhaps" or "misses", in which case
	// nothing may happen. OtherPath reports whether the sites were connected all the time, by this
	// path or another.
	Hit       string `json:"hit"`
	OtherPath bool   `json:"other_path"`

	Bytes   uint64 `json:"bytes"`   // that arrived
	HashOK  bool   `json:"hash_ok"` // they are those that were sent
	Lost    uint64 `json:"lost"`    // bytes
	Doubled uint64 `json:"doubled"`

	StallMS    float64 `json:"stall_ms"`     // of the receiver, at the cut
	StallMaxMS float64 `json:"stall_max_ms"` // the longest of all
	GapP99MS   float64 `json:"gap_p99_ms"`   // between two of its reads

	Before string `json:"before"` // the path of the stream before the cut,
	After  string `json:"after"`  // of the first bytes after it
	End    string `json:"end"`    // and of the last

	AwayMS      float64  `json:"away_ms"`     // from the cut until the path exists again
	BackMS      *float64 `json:"back_ms"`     // from then until it is used permanently; null: never
	Carriers    int      `json:"carriers"`    // carriers that the stream used
	Connections int      `json:"connections"` // carriers that the receiver got
	Rate        float64  `json:"mbit_s"`      // of the stream before the cut

	// Busy is the maximum processor time that a daemon or an end used per second, in seconds, when
	// nothing was left but a trickle.
	Busy   float64 `json:"busy"`
	Busier string  `json:"busier"` // name of that process

	Error  string   `json:"error"`
	Faults []string `json:"faults"`
	OK     bool     `json:"ok"`

	want     uint64        // bytes
	rtt      time.Duration // between any two endpoints
	best     string        // technique
	was, is  string        // before the cut and at the end
	broken   int           // carriers that the stream used when it was cut, and that ended then or later while in use
	stayed   bool          // it uses one of them at the end
	mismatch string        // the receiver's description of an error in the content
}

var hitNames = map[hit]string{misses: "misses", perhaps: "perhaps", kills: "kills"}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// stallBound bounds how long the stream may stall if another path exists: the time to detect the
// death of one and for the handshake on the next. A relay is two paths long.
func (c *Cell) stallBound() time.Duration {
	rtt := c.rtt
	if strings.HasPrefix(c.Before, "relay") || strings.HasPrefix(c.After, "relay") {
		rtt *= 2
	}
	return stallBound + stallRTTs*rtt
}

// judge fills Faults and OK.
func (c *Cell) judge() {
	c.Faults = []string{}
	blame := func(wrong bool, format string, args ...any) {
		if wrong {
			c.Faults = append(c.Faults, fmt.Sprintf(format, args...))
		}
	}
	defer func() { c.OK = len(c.Faults) == 0 }()
	if blame(c.Error != "", "%s", c.Error); c.Error != "" {
		return
	}
	blame(c.was != c.best, "the stream was on %s before the cut, and the best is %s", c.was, c.best)
	blame(c.mismatch != "", "%s", c.mismatch)
	blame(c.Lost > 0, "%d bytes are lost", c.Lost)
	blame(c.Doubled > 0, "%d bytes came twice", c.Doubled)
	blame(!c.HashOK, "what arrived is not what was sent")
	blame(c.Bytes < c.want, "only %d of %d bytes arrived", c.Bytes, c.want)
	missed := c.Hit == hitNames[misses]
	blame(missed && c.broken > 0, "the cut should not matter, but carriers of the stream broke (%d), and %s became %s", c.broken, c.Before, c.End)
	blame(missed && c.broken == 0 && !c.stayed, "the cut should not matter, but the link left all carriers that it had: %s became %s", c.Before, c.End)
	most := ms(c.stallBound())
	blame((missed || c.OtherPath) && c.StallMS > most, "a stall of %.0f ms, at most %.0f are good", c.StallMS, most)
	blame(c.Busy > busyBound, "%s used %.2f of a processor when all was over, at most %.2f is good", c.Busier, c.Busy, busyBound)
	switch {
	case c.BackMS == nil:
		blame(true, "not back on %s %v after it was there again, but on %s", c.best, returnBound, c.is)
	default:
		blame(*c.BackMS > ms(returnBound), "back on %s only %.1f s after it was there again", c.best, *c.BackMS/1000)
	}
}
