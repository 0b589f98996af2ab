package daemon

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Size is a number of bytes, written as "4MiB", "64 KiB", "1.5GiB" or
// "4096". Decimal units (kB, MB, GB, TB) are powers of 1000.
type Size int64

var units = []struct {
	name  string
	bytes int64
}{
	// Largest first, so that printing finds the shortest text.
	{"TiB", 1 << 40}, {"TB", 1e12}, {"GiB", 1 << 30}, {"GB", 1e9},
	{"MiB", 1 << 20}, {"MB", 1e6}, {"KiB", 1 << 10}, {"kB", 1e3}, {"B", 1},
}

// UnmarshalText parses a size as described at the type.
func (s *Size) UnmarshalText(text []byte) error {
	number, unit := string(text), int64(1)
	for _, u := range units {
		if rest, ok := strings.CutSuffix(number, u.name); ok {
			number, unit = strings.TrimSpace(rest), u.bytes
			break
		}
	}
	// Only digits and a point: no sign, exponent, NaN or underscore.
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || strings.Trim(number, "0123456789.") != "" {
		return fmt.Errorf("%q is not a size; write a number and a unit, as in 64KiB or 4MiB", text)
	}
	bytes := n * float64(unit)
	if bytes >= math.MaxInt64 {
		return fmt.Errorf("%q is too large", text)
	}
	if bytes != math.Trunc(bytes) {
		return fmt.Errorf("%q is not a whole number of bytes", text)
	}
	*s = Size(bytes)
	return nil
}

// MarshalText formats the size as UnmarshalText parses it.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// String returns the size in the largest unit that needs no fraction.
func (s Size) String() string {
	for _, u := range units {
		if s != 0 && int64(s)%u.bytes == 0 {
			return strconv.FormatInt(int64(s)/u.bytes, 10) + u.name
		}
	}
	return "0"
}

// A Path names a file or a folder. In a file it is relative to that file's folder; on the command
// line and in the environment, to the working directory. A URL, where a setting accepts one, is
// left unchanged.
type Path string

var (
	durationType = reflect.TypeFor[time.Duration]()
	pathType     = reflect.TypeFor[Path]()
)

// parseScalar sets v, which f describes, from one word.
func parseScalar(f *field, v reflect.Value, text string) error {
	if err := parseKind(v, text); err != nil {
		return err
	}
	if len(f.enum) > 0 && !slices.Contains(f.enum, text) {
		return fmt.Errorf("%q is not one of %s%s", text, strings.Join(f.enum, ", "), DidYouMean(text, "", f.enum))
	}
	return inBounds(f, v)
}

func parseKind(v reflect.Value, text string) error {
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		if err := u.UnmarshalText([]byte(text)); err != nil {
			return fmt.Errorf("%q: %w", text, err)
		}
		return nil
	}
	if v.Type() == durationType {
		d, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("%q is not a duration; write numbers and units, as in 250ms, 10s or 1h30m", text)
		}
		v.SetInt(int64(d))
		return nil
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		if text != "true" && text != "false" {
			return fmt.Errorf("%q is neither true nor false", text)
		}
		v.SetBool(text == "true")
	case reflect.Float32, reflect.Float64:
		n, err := strconv.ParseFloat(text, v.Type().Bits())
		if err != nil || math.IsNaN(n) || math.IsInf(n, 0) {
			return fmt.Errorf("%q is not a number", text)
		}
		v.SetFloat(n)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		n, err := strconv.ParseInt(text, 10, v.Type().Bits())
		if err != nil {
			return notInteger(text, err, v.Type())
		}
		v.SetInt(n)
	default: // describe rejects other types
		n, err := strconv.ParseUint(text, 10, v.Type().Bits())
		if err != nil {
			return notInteger(text, err, v.Type())
		}
		v.SetUint(n)
	}
	return nil
}

func notInteger(text string, err error, t reflect.Type) error {
	switch unsigned := t.Kind() >= reflect.Uint; {
	case errors.Is(err, strconv.ErrRange):
		return fmt.Errorf("%s is out of range (%d bits)", text, t.Bits())
	case unsigned && strings.HasPrefix(text, "-"):
		return fmt.Errorf("%s is negative", text)
	}
	return fmt.Errorf("%q is not a whole number", text)
}

// inBounds compares v with the field's min and max, which are parsed as v is.
func inBounds(f *field, v reflect.Value) error {
	for _, bound := range []struct {
		text  string
		wrong int // result of the comparison when v breaks the bound
		word  string
	}{{f.min, -1, "less"}, {f.max, +1, "more"}} {
		if bound.text == "" {
			continue
		}
		limit := reflect.New(v.Type()).Elem()
		if err := parseKind(limit, bound.text); err != nil {
			panic("daemon: " + f.key + ": bound " + err.Error())
		}
		if order(v, limit) == bound.wrong {
			return fmt.Errorf("%s is %s than %s", formatScalar(v), bound.word, bound.text)
		}
	}
	return nil
}

func order(a, b reflect.Value) int {
	switch {
	case a.CanInt():
		return cmp.Compare(a.Int(), b.Int())
	case a.CanUint():
		return cmp.Compare(a.Uint(), b.Uint())
	case a.CanFloat():
		return cmp.Compare(a.Float(), b.Float())
	}
	panic("daemon: a bound needs a number, a duration or a size, not a " + a.Type().String())
}

// formatScalar formats v as parseScalar parses it.
func formatScalar(v reflect.Value) string {
	if v.Type() == durationType {
		return formatDuration(time.Duration(v.Int()))
	}
	if m, ok := v.Interface().(encoding.TextMarshaler); ok {
		if text, err := m.MarshalText(); err == nil {
			return string(text)
		}
	}
	return fmt.Sprint(v.Interface())
}

// formatDuration is d.String without trailing zeros: 1h, not 1h0m0s.
func formatDuration(d time.Duration) string {
	text := d.String()
	if rest, ok := strings.CutSuffix(text, "m0s"); ok {
		text = rest + "m"
	}
	if rest, ok := strings.CutSuffix(text, "h0m"); ok {
		text = rest + "h"
	}
	return text
}
