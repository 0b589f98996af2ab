package profile

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Rate is in bits per second, Bytes in bytes, Frequency in cycles per second, Percent in
// hundredths. Their texts are a number and a unit, such as 100Mbit/s, 2GiB, 2.4GHz and 20%.
type (
	Rate      int64
	Bytes     int64
	Frequency int64
	Percent   float64
)

type unit struct {
	name string
	size float64
}

// The units, the largest first of each family; printing uses the first that needs no fraction.
var (
	rateUnits = []unit{{"Gbit/s", 1e9}, {"Mbit/s", 1e6}, {"kbit/s", 1e3}, {"bit/s", 1},
		{"GiB/s", 8 << 30}, {"MiB/s", 8 << 20}, {"KiB/s", 8 << 10}, {"GB/s", 8e9}, {"MB/s", 8e6}, {"kB/s", 8e3}, {"B/s", 8}}
	byteUnits = []unit{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
		{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"B", 1}}
	frequencyUnits = []unit{{"GHz", 1e9}, {"MHz", 1e6}, {"kHz", 1e3}, {"Hz", 1}}
	latencyUnits   = []unit{{"s", 1e9}, {"ms", 1e6}, {"us", 1e3}, {"µs", 1e3}, {"ns", 1}}
	percentUnits   = []unit{{"%", 1}}
)

func (r Rate) String() string      { return written(int64(r), rateUnits) }
func (b Bytes) String() string     { return written(int64(b), byteUnits) }
func (f Frequency) String() string { return written(int64(f), frequencyUnits) }
func (p Percent) String() string   { return strconv.FormatFloat(float64(p), 'f', -1, 64) + "%" }

// written formats n in the first unit that needs no fraction.
func written(n int64, units []unit) string {
	for _, u := range units {
		if n%int64(u.size) == 0 && (n != 0 || u.size == 1) {
			return strconv.FormatInt(n/int64(u.size), 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

// ParseRate parses a positive bandwidth, such as 100Mbit/s.
func ParseRate(text string) (Rate, error) {
	n, err := parseQuantity("bandwidth", text, rateUnits)
	return Rate(n), err
}

// ParseBytes parses a positive number of bytes, such as 2GiB.
func ParseBytes(text string) (Bytes, error) {
	n, err := parseQuantity("memory", text, byteUnits)
	return Bytes(n), err
}

// ParseFrequency parses a positive speed of a core, such as 2.4GHz.
func ParseFrequency(text string) (Frequency, error) {
	n, err := parseQuantity("speed", text, frequencyUnits)
	return Frequency(n), err
}

// ParseLatency parses a positive round trip, such as 5ms.
func ParseLatency(text string) (time.Duration, error) {
	n, err := parseQuantity("latency", text, latencyUnits)
	return time.Duration(n), err
}

func parsePercent(text string) (Percent, error) {
	n, err := quantity("share", text, percentUnits)
	if err == nil && n > 100 {
		err = fmt.Errorf("%q is more than 100%%", text)
	}
	return Percent(n), err
}

// parseQuantity parses a positive quantity that has a smallest unit.
func parseQuantity(what, text string, units []unit) (int64, error) {
	n, err := quantity(what, text, units)
	if err != nil {
		return 0, err
	}
	n = math.Round(n)
	switch {
	case n == 0:
		return 0, fmt.Errorf("%q is no demand; remove the key to ask for nothing", text)
	case n >= math.MaxInt64/2:
		return 0, fmt.Errorf("%q is too large", text)
	}
	return int64(n), nil
}

// quantity parses a number and one of units, with or without space between.
func quantity(what, text string, units []unit) (float64, error) {
	// Only digits and a point: no sign, exponent, NaN or underscore.
	digits := text[:len(text)-len(strings.TrimLeft(text, "0123456789."))]
	name := strings.TrimLeft(text[len(digits):], " ")
	n, err := strconv.ParseFloat(digits, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is no %s; write a number and one of the units %s", text, what, names(units))
	}
	for _, u := range units {
		if u.name == name {
			return n * u.size, nil
		}
	}
	if name == "" {
		return 0, fmt.Errorf("%q has no unit; write %s%s, or another of the units %s", text, digits, units[min(1, len(units)-1)].name, names(units))
	}
	return 0, fmt.Errorf("%q has the unknown unit %q; the units are %s", text, name, names(units))
}

func names(units []unit) string {
	list := make([]string, len(units))
	for i, u := range units {
		list[i] = u.name
	}
	return strings.Join(list, ", ")
}
