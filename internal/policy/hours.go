package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // so that a host without the time zone database decides as others do

	"github.com/isthmus-grid/isthmus/internal/daemon"
)

// Hours is a span of the day on some days of the week, by the wall clock of the policy's zone:
// where a clock is set back, an hour counts twice.
type Hours struct {
	Days []Day `yaml:"days" help:"On which days the span begins: mon, tue, wed, thu, fri, sat, sun, or mon-fri. Without it, every day."`
	From Clock `yaml:"from" default:"00:00" help:"The first minute, as 20:00."`
	To   Clock `yaml:"to" default:"24:00" help:"The end, itself not included. Before from, it is on the next day."`
}

// Zone is a time zone by its name in the IANA database, as "Europe/Berlin".
type Zone struct{ *time.Location }

// UnmarshalText parses a zone's name.
func (z *Zone) UnmarshalText(text []byte) error {
	at, err := time.LoadLocation(string(text))
	if err != nil || at == time.Local || len(text) == 0 {
		return errors.New("no such time zone; write UTC, or a name as Europe/Berlin")
	}
	*z = Zone{at}
	return nil
}

// MarshalText returns the name.
func (z Zone) MarshalText() ([]byte, error) { return []byte(z.String()), nil }

// Day is a day of the week, or several consecutive ones, as "mon-fri".
type Day struct{ first, last time.Weekday }

// Clock is a time of day in minutes since midnight, as "07:30". 24:00 is the end of the day.
type Clock int

const (
	day  = 24 * 60 // minutes
	week = 7 * day
)

var dayNames = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

// UnmarshalText parses "mon" or "mon-fri".
func (d *Day) UnmarshalText(text []byte) error {
	first, last, several := strings.Cut(string(text), "-")
	if !several {
		last = first
	}
	a, b := slices.Index(dayNames, first), slices.Index(dayNames, last)
	if a < 0 || b < 0 {
		return errors.New("want one of mon, tue, wed, thu, fri, sat, sun, or two with - between, as mon-fri")
	}
	*d = Day{time.Weekday(a), time.Weekday(b)}
	return nil
}

// MarshalText formats what UnmarshalText parses.
func (d Day) MarshalText() ([]byte, error) {
	if d.first == d.last {
		return []byte(dayNames[d.first]), nil
	}
	return []byte(dayNames[d.first] + "-" + dayNames[d.last]), nil
}

// has reports whether d, which may span the end of a week, contains a day.
func (d Day) has(w time.Weekday) bool {
	return (w-d.first+7)%7 <= (d.last-d.first+7)%7
}

// UnmarshalText parses "07:30".
func (c *Clock) UnmarshalText(text []byte) error {
	var h, m int
	if len(text) == 5 && text[2] == ':' {
		for i, at := range []int{0, 1, 3, 4} {
			if text[at] < '0' || text[at] > '9' {
				h = day
			}
			digit := int(text[at] - '0')
			switch i {
			case 0, 1:
				h = 10*h + digit
			default:
				m = 10*m + digit
			}
		}
		if m < 60 && h*60+m <= day {
			*c = Clock(h*60 + m)
			return nil
		}
	}
	return errors.New("want a time of day from 00:00 to 24:00, in quotes")
}

// MarshalText formats what UnmarshalText parses.
func (c Clock) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// String returns the form of UnmarshalText.
func (c Clock) String() string { return fmt.Sprintf("%02d:%02d", int(c)/60, int(c)%60) }

// Check implements the check of package daemon.
func (h Hours) Check() error {
	switch {
	case h.From == h.To:
		return daemon.Wrong("to", "%v is also from; leave both away for the whole day", h.To)
	case h.From == day:
		return daemon.Wrong("from", "%v is no minute of the day; write 00:00 and the next day", h.From)
	}
	return nil
}

// contain reports whether t, in the policy's zone, is in the span.
func (h Hours) contain(t time.Time) bool {
	now := Clock(t.Hour()*60 + t.Minute())
	today := t.Weekday()
	if h.From < h.To {
		return h.begins(today) && h.From <= now && now < h.To
	}
	return h.begins(today) && h.From <= now || h.begins((today+6)%7) && now < h.To
}

func (h Hours) begins(w time.Weekday) bool {
	return len(h.Days) == 0 || slices.ContainsFunc(h.Days, func(d Day) bool { return d.has(w) })
}

// String describes the span, as "mon-fri 20:00-06:00".
func (h Hours) String() string {
	var days []string
	for _, d := range h.Days {
		text, _ := d.MarshalText()
		days = append(days, string(text))
	}
	if len(days) == 0 {
		days = []string{"daily"}
	}
	return fmt.Sprintf("%s %v-%v", strings.Join(days, ","), h.From, h.To)
}

// minutes returns the set of a week's minutes in at least one of the spans, counted from Sunday's
// midnight; no spans are the whole week.
func minutes(spans []Hours) *[week]bool {
	var set [week]bool
	for i := range set {
		set[i] = len(spans) == 0
	}
	for _, h := range spans {
		h.each(func(m int) { set[m] = true })
	}
	return &set
}

// each calls visit for every minute of the week in the span.
func (h Hours) each(visit func(int)) {
	length := int(h.To-h.From+day) % day
	if length == 0 {
		length = day // 00:00 to 24:00
	}
	for w := range 7 {
		if h.begins(time.Weekday(w)) {
			for m := range length {
				visit((w*day + int(h.From) + m) % week)
			}
		}
	}
}

// overlapping returns two spans, a before b, that share a minute.
func overlapping(spans []Hours) (a, b int, overlap bool) {
	var owner [week]int // index of the span + 1
	for i, h := range spans {
		h.each(func(m int) {
			if before := owner[m]; before != 0 && before != i+1 && !overlap {
				a, b, overlap = before-1, i, true
			}
			owner[m] = i + 1
		})
	}
	return a, b, overlap
}
