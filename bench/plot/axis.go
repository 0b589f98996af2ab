package plot

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
)

// canShow reports whether a value can be shown on the axis.
func (a Axis) canShow(v float64) bool {
	return !math.IsNaN(v) && !math.IsInf(v, 0) && (!a.Log || v > 0)
}

// apply configures the library's axis like a, with room for the values.
func (a Axis) apply(to *plot.Axis, values []float64) {
	to.Min, to.Max = slices.Min(values), slices.Max(values)
	if a.Log {
		to.Scale = plot.LogScale{}
		room := max(math.Pow(to.Max/to.Min, 0.04), 1.05)
		to.Min, to.Max = to.Min/room, to.Max*room
	} else {
		to.Min = min(0, to.Min)
		to.Max += max((to.Max-to.Min)*0.05, 1e-12)
	}
	switch {
	case a.Whole:
		to.Tick.Marker = ticksAt(values)
	case a.Log && a.Bytes:
		to.Tick.Marker = plot.TickerFunc(byteTicks)
	case a.Log:
		to.Tick.Marker = plot.TickerFunc(decadeTicks)
	case a.Bytes:
		to.Tick.Marker = labelled(FormatBytes)
	default:
		to.Tick.Marker = labelled(formatNumber)
	}
}

// ticksAt returns a tick at each value.
func ticksAt(values []float64) plot.Ticker {
	var ticks plot.ConstantTicks
	for _, v := range slices.Compact(slices.Sorted(slices.Values(values))) {
		ticks = append(ticks, plot.Tick{Value: v, Label: formatNumber(v)})
	}
	return ticks
}

// labelled returns the library's ticks, with our own labels.
func labelled(format func(float64) string) plot.Ticker {
	return plot.TickerFunc(func(from, to float64) []plot.Tick {
		ticks := plot.DefaultTicks{}.Ticks(from, to)
		for i := range ticks {
			if !ticks[i].IsMinor() {
				ticks[i].Label = format(ticks[i].Value)
			}
		}
		return ticks
	})
}

// maxTicks is the maximum number of labelled ticks of an axis.
const maxTicks = 10

// byteTicks returns a tick at each power of two, with labels at some.
func byteTicks(from, to float64) []plot.Tick {
	first, last := int(math.Ceil(math.Log2(from))), int(math.Floor(math.Log2(to)))
	every := 1 + (last-first)/maxTicks
	var ticks []plot.Tick
	for e := first; e <= last; e++ {
		t := plot.Tick{Value: math.Exp2(float64(e))}
		if (e-first)%every == 0 {
			t.Label = FormatBytes(t.Value)
		}
		ticks = append(ticks, t)
	}
	return ticks
}

// decadeTicks returns ticks at 1, 2, .. 9 times each power of ten; those at the powers have labels,
// and where there are few of them, those at 2 and 5, too. Between two powers the ticks are as on a
// linear axis.
func decadeTicks(from, to float64) []plot.Tick {
	if to/from < 8 {
		return labelled(formatNumber).Ticks(from, to)
	}
	few := to/from < 1000
	var ticks []plot.Tick
	for e := math.Floor(math.Log10(from)); e <= math.Ceil(math.Log10(to)); e++ {
		for digit := 1.0; digit <= 9; digit++ {
			v := digit * math.Pow(10, e)
			if v < from || v > to {
				continue
			}
			t := plot.Tick{Value: v}
			if digit == 1 || few && (digit == 2 || digit == 5) {
				t.Label = formatNumber(v)
			}
			ticks = append(ticks, t)
		}
	}
	return ticks
}

func formatNumber(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }

// FormatBytes formats a number of bytes in the largest unit that leaves one or more.
func FormatBytes(v float64) string {
	units := [...]string{"B", "KiB", "MiB", "GiB"}
	unit := 0
	for ; v >= 1024 && unit < len(units)-1; unit++ {
		v /= 1024
	}
	return fmt.Sprintf("%s %s", formatNumber(v), units[unit])
}
