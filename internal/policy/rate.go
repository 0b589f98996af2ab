package policy

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Rate is a number of bits per second, written as 100Mbit or 1.5Gbit.
type Rate int64

var rateUnits = []struct {
	name string
	bits int64
}{{"Tbit", 1e12}, {"Gbit", 1e9}, {"Mbit", 1e6}, {"kbit", 1e3}, {"bit", 1}} // longest first: each ends in "bit"

// UnmarshalText reads a rate. A unit is required: a bare number could be
// bytes, and B for bytes is refused.
func (r *Rate) UnmarshalText(text []byte) error {
	number, unit := string(text), int64(0)
	if number == "0" {
		*r = 0
		return nil
	}
	for _, u := range rateUnits {
		if rest, ok := strings.CutSuffix(strings.TrimSuffix(number, "/s"), u.name); ok {
			number, unit = strings.TrimSpace(rest), u.bits
			break
		}
	}
	n, err := strconv.ParseFloat(number, 64)
	if unit == 0 || err != nil || strings.Trim(number, "0123456789.") != "" {
		return fmt.Errorf("want a number and one of bit, kbit, Mbit, Gbit, Tbit, as 100Mbit (bits per second)")
	}
	if n *= float64(unit); n >= math.MaxInt64 || n != math.Trunc(n) {
		return fmt.Errorf("want a whole number of bits per second below 2^63")
	}
	*r = Rate(n)
	return nil
}

// MarshalText writes the rate as UnmarshalText reads it.
func (r Rate) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// String is the rate in the largest unit that needs no fraction.
func (r Rate) String() string {
	for _, u := range rateUnits {
		if r != 0 && int64(r)%u.bits == 0 {
			return strconv.FormatInt(int64(r)/u.bits, 10) + u.name
		}
	}
	return "0"
}
