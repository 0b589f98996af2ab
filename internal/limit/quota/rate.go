package quota

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// A Rate is a number of bits per second, written as "100Mbit/s", "1Gbit/s" or "64 kbit/s"; 0,
// written as "none", is unlimited.
type Rate int64

// maxRate keeps sums and products of rates far from overflow.
const maxRate = 1e15

var rateUnits = []struct {
	name string
	bits Rate
}{{"Gbit/s", 1e9}, {"Mbit/s", 1e6}, {"kbit/s", 1e3}, {"bit/s", 1}}

// UnmarshalText parses a rate as described at the type.
func (r *Rate) UnmarshalText(text []byte) error {
	if string(text) == "none" {
		*r = 0
		return nil
	}
	for _, u := range rateUnits {
		number, ok := strings.CutSuffix(string(text), u.name)
		if !ok {
			continue
		}
		// Only digits and a point: no sign, exponent, NaN or underscore.
		number = strings.TrimSpace(number)
		n, err := strconv.ParseFloat(number, 64)
		if err != nil || strings.Trim(number, "0123456789.") != "" {
			break
		}
		bits := math.Round(n * float64(u.bits))
		if bits < 1 || bits > maxRate {
			return fmt.Errorf("%q is out of range; want 1bit/s to 1000000Gbit/s, or none for no limit", text)
		}
		*r = Rate(bits)
		return nil
	}
	return fmt.Errorf("%q is not a rate; write a number and a unit, such as 100Mbit/s or 1Gbit/s, or none", text)
}

// MarshalText formats the rate as UnmarshalText parses it.
func (r Rate) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// String returns the rate in the largest unit that needs no fraction.
func (r Rate) String() string {
	for _, u := range rateUnits {
		if r != 0 && r%u.bits == 0 {
			return strconv.FormatInt(int64(r/u.bits), 10) + u.name
		}
	}
	return "none"
}

// bytes returns the rate in bytes per second.
func (r Rate) bytes() float64 { return float64(r) / 8 }
