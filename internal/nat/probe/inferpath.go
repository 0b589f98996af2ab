package probe

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// bound is the value of a field that is an amount or a time: 0 means no bound.
type bound struct {
	value   uint64
	atLeast bool // it may be more
}

// none is the text form of no bound in a finding and a setting.
const none = "none"

// String returns the bound as in findings: "none", "25" or, for a lower bound, "290+".
func (b bound) String() string {
	switch {
	case b.value == 0:
		return none
	case b.atLeast:
		return strconv.FormatUint(b.value, 10) + "+"
	}
	return strconv.FormatUint(b.value, 10)
}

// parseBound parses the output of String.
func parseBound(text string) (b bound, ok bool) {
	if text == none {
		return b, true
	}
	text, b.atLeast = strings.CutSuffix(text, "+")
	v, err := strconv.ParseUint(text, 10, 64)
	b.value = v
	return b, err == nil
}

// setBound stores the bound in a finding, if the field can hold it.
func setBound[T uint16 | uint32 | uint64](to *T, text string) {
	if b, ok := parseBound(text); ok && b.value <= uint64(^T(0)) {
		*to = T(b.value)
	}
}

// boundText returns the text of a profile's field; zero is the text for 0.
func boundText[T uint16 | uint32 | uint64](v T, zero string) string {
	if v == 0 {
		return zero
	}
	return strconv.FormatUint(uint64(v), 10)
}

// together is the lower bound of the share of the outbound rate that gets through when as much is
// returned, if one limit applies to both directions: the measured share is a half, and shares from
// together to twice that count.
const together = 0.35

// implausible is the fraction of a rate that got through unhindered shortly before, below which a
// measured rate cannot be a limit: a limiter's burst is over within the steps, and a host or path
// that was busy for a moment is no limiter.
const implausible = 0.2

// rate returns limit, unless that is implausible.
func (o Observations) rate() inferred[bound] {
	t := o.limit()
	limited, top := rateLimits(o.Rate, true, 1)
	if !t.ok || limited == nil || top == nil || float64(t.value.value) >= implausible*float64(top.Delivered) {
		return t
	}
	return unknown[bound]("%s; but %s had got through just before, so that this is no limit but a busy moment", t.how, speed(top.Delivered))
}

func (o Observations) limit() inferred[bound] {
	switch {
	case len(answered(o.UDP)) == 0:
		return unknown[bound]("no datagram was answered")
	case len(o.Rate) == 0 && o.RateErr != "":
		return unknown[bound]("%s", o.RateErr)
	case len(o.Rate) == 0:
		return unknown[bound]("no rates were tried")
	}
	out, outTop := rateLimits(o.Rate, false, 1)
	tries := 2
	if out == nil && outTop != nil {
		tries = 3 // small answers contradict it
	}
	both, top := rateLimits(o.Rate, true, tries)
	last := o.Rate[len(o.Rate)-1]
	switch {
	case both == nil && (!last.Echoed || last.limited()):
		return unknown[bound]("at %s, %s got through, and the measurement ended before it was tried again", speed(last.Rate), speed(last.Delivered))
	case both == nil:
		return is(bound{}, "%d of %d datagrams at %s, and as large answers, got through: not limited below %s", top.Answered, top.Sent, speed(top.Rate), speed(top.Offered/4*3))
	case top == nil:
		return unknown[bound]("at %s, the slowest that is tried, not all gets through: %s does (%d of %d datagrams), which may be loss as well", speed(both.Rate), speed(both.Delivered), both.Answered, both.Sent)
	}
	back := fmt.Sprintf("of %s sent, %s got through and back (%d of %d datagrams)", speed(both.Offered), speed(both.Delivered), both.Answered, both.Sent)
	switch {
	case out == nil:
		return is(bound{value: round(both.Delivered)}, "%s, while with small answers nothing was held back: inbound traffic is limited", back)
	case float64(both.Delivered) < together*float64(out.Delivered):
		return is(bound{value: round(both.Delivered)}, "%s, while with small answers %s did: inbound traffic is limited more than outbound", back, speed(out.Delivered))
	case float64(both.Delivered) < 2*together*float64(out.Delivered):
		return is(bound{value: round(out.Delivered)}, "of %s sent with small answers, %s got through (%d of %d datagrams); %s, as if one limit held for both directions together", speed(out.Offered), speed(out.Delivered), out.Answered, out.Sent, back)
	}
	// A busy host makes either rate seem lower than it is; nothing makes it seem higher.
	return is(bound{value: round(max(out.Delivered, both.Delivered))}, "of %s sent with small answers, %s got through (%d of %d datagrams); %s", speed(out.Offered), speed(out.Delivered), out.Answered, out.Sent, back)
}

// rateLimits returns the last step if it and the tries-1 steps before it were limited, and the last
// one that was not limited; nil if there is none.
func rateLimits(steps []RateStep, echoed bool, tries int) (limited, passed *RateStep) {
	running, rate := 0, uint64(0)
	for i := range steps {
		s := &steps[i]
		if s.Echoed != echoed {
			continue
		}
		if s.Rate != rate {
			running, rate = 0, s.Rate
		}
		running++
		if limited = s; !s.limited() {
			running, limited, passed = 0, nil, s
		}
	}
	if running < tries {
		limited = nil
	}
	return limited, passed
}

// round keeps two significant digits, the precision of a rate.
func round(v uint64) uint64 {
	if v < 100 {
		return v
	}
	unit := math.Pow(10, math.Floor(math.Log10(float64(v)))-1)
	return uint64(math.Round(float64(v)/unit) * unit)
}

// speed formats bits per second for humans.
func speed(v uint64) string {
	if v < 1_000_000 {
		return fmt.Sprintf("%.3g kb/s", float64(v)/1e3)
	}
	return fmt.Sprintf("%.3g Mb/s", float64(v)/1e6)
}

func (o Observations) mtu() inferred[bound] {
	s := o.Sizes
	switch {
	case s == nil:
		return unknown[bound]("no datagram was answered")
	case s.Err != "":
		return unknown[bound]("%s", s.Err)
	case len(s.Passed) == 0:
		return unknown[bound]("no packet of %s bytes got to %v and back, whereas small ones do", sizesText(s.Lost), s.To.Addr())
	}
	most := s.Passed[0]
	var larger []int
	for _, size := range s.Lost {
		if size > most {
			larger = append(larger, size)
		}
	}
	switch {
	case len(larger) == 0:
		return is(bound{}, "packets of %d bytes pass to %v and back, the most that was tried with an interface of %d", most, s.To.Addr(), s.Interface)
	case s.Reported >= most && s.Reported < slices.Min(larger):
		return is(bound{value: uint64(s.Reported)}, "a router said that larger packets do not pass; those of %d bytes do, of %s do not", most, sizesText(larger))
	}
	return is(bound{value: uint64(most)}, "packets of %d bytes pass to %v and back; those of %s are lost on the path without an ICMP message (the interface takes %d)", most, s.To.Addr(), sizesText(larger), s.Interface)
}

func sizesText(sizes []int) string {
	var texts []string
	for _, s := range sizes {
		texts = append(texts, strconv.Itoa(s))
	}
	return strings.Join(texts, ", ")
}

func (o Observations) ipv6() inferred[bool] {
	if len(o.IPv6) == 0 {
		return unknown[bool]("no reflector has an IPv6 address")
	}
	got := answered(o.IPv6)
	if len(got) == 0 {
		return is(false, "%s was not reached over IPv6 (%s)", hosts(o.IPv6), o.IPv6[0].Err)
	}
	for _, v := range got {
		if v.Seen.Addr() != v.Local.Addr() {
			return is(false, "over IPv6 %v was seen as %v: it is translated", v.Local.Addr(), v.Seen.Addr())
		}
	}
	return is(true, "%s saw the node's own address %v", hosts(got), got[0].Local.Addr())
}

// ipv6Only determines whether only IPv6 reaches other sites.
func (o Observations) ipv6Only() inferred[bool] {
	four := slices.Concat(o.TCP, o.UDP)
	if o.Proxy != nil {
		four = append(four, *o.Proxy)
	}
	got, six := answered(four), answered(o.IPv6)
	switch {
	case len(got) > 0:
		return is(false, "%s answered over IPv4", hosts(got))
	case len(six) == 0:
		return unknown[bool]("no reflector answered over IPv4 or IPv6")
	case len(four) == 0:
		return unknown[bool]("no reflector has an IPv4 address to try")
	}
	return is(true, "%s answered over IPv6, and none of %s over IPv4 (%s)", hosts(six), hosts(four), four[0].Err)
}

// seenAt returns the address at which all reflectors saw this host; the zero address if some saw it at another one:
// a peer may meet it there.
func (o Observations) seenAt() inferred[netip.Addr] {
	views := answered(slices.Concat(o.TCP, o.UDP))
	if len(views) == 0 {
		return unknown[netip.Addr]("no reflector answered over IPv4")
	}
	at := views[0].Seen.Addr()
	for _, v := range views {
		if v.Seen.Addr() != at {
			return is(netip.Addr{}, "%v saw %v, and %v %v", views[0].To.Addr(), at, v.To.Addr(), v.Seen.Addr())
		}
	}
	return is(at, "%s saw that address", hosts(views))
}

func (o Observations) privileged() inferred[bool] {
	switch {
	case o.Raw == nil:
		return unknown[bool]("it was not tried to open raw sockets")
	case o.Raw.Err != "":
		return is(false, "raw sockets were not opened: %s", o.Raw.Err)
	}
	return is(true, "raw sockets were opened at the node that measured; the site's other nodes were not asked")
}

func (o Observations) highPortsOnly() inferred[bool] {
	switch {
	case o.Port443 == nil:
		return unknown[bool]("it was not tried to bind port 443")
	case o.Port443.Err != "":
		return is(true, "port 443 was not bound: %s", o.Port443.Err)
	}
	return is(false, "port 443 may be bound at the node that measured; the site's other nodes were not asked")
}

// Findings returns the findings for IdleTCP and IdleUDP.
func (o IdleObservations) Findings() []Finding {
	var all []Finding
	for _, f := range []struct {
		field, what string
		tried       []Idle
	}{{IdleTCP, "connection", o.TCP}, {IdleUDP, "UDP mapping", o.UDP}} {
		t := lifetime(f.what, f.tried)
		value := ""
		if t.ok {
			value = t.value.String()
		}
		all = append(all, Finding{f.field, value, t.how})
	}
	return all
}

// lifetime evaluates mappings that were left idle for rising times. The longest that lived counts:
// an answer may be lost, but none arrives by chance.
func lifetime(what string, tried []Idle) inferred[bound] {
	var longest, gone time.Duration
	fault := "nothing was tried"
	for _, i := range tried {
		switch {
		case i.Err != "":
			fault = fmt.Sprintf("a %s that was to be idle for %v: %s", what, i.After, i.Err)
		case i.Lived:
			longest, gone = i.After, 0
		case gone == 0:
			gone = i.After
		}
	}
	switch {
	case longest == 0 && gone == 0:
		return unknown[bound]("%s", fault)
	case longest == 0:
		return unknown[bound]("no late answer came in, not even after %v", gone)
	case gone == 0:
		return is(bound{uint64(longest / time.Second), true}, "a %s that was idle for %v let the answer in, the longest that could be tried", what, longest)
	}
	return is(bound{value: uint64(longest / time.Second)}, "a %s that was idle for %v let the answer in, and one of %v did not", what, longest, gone)
}

// Stateless returns the findings for IdleTCP and IdleUDP of a site that keeps no connection state,
// and reports whether m describes one.
func (m Measured) Stateless() ([]Finding, bool) {
	filter, mapping := m.finding(Filter), m.finding(NATMapping)
	plain := filter.Value == overlay.FilterNone.String() || filter.Value == overlay.FilterStateless.String()
	if !plain || mapping.Value != overlay.NATNone.String() {
		return nil, false
	}
	how := "there is no NAT, and no filter that remembers connections, so that nothing can be forgotten"
	return []Finding{{IdleTCP, none, how}, {IdleUDP, none, how}}, true
}

// State returns the findings for the site's filter and NAT: when they change, the idle times must
// be measured again.
func (m Measured) State() [2]string {
	return [2]string{m.finding(Filter).Value, m.finding(NATMapping).Value}
}

func (m Measured) finding(field string) Finding {
	return Result{Findings: m.Findings}.Finding(field)
}

// With returns m with its findings for the given fields replaced.
func (m Measured) With(findings []Finding) Measured {
	m.Findings = slices.Clone(m.Findings)
	for _, f := range findings {
		if i := slices.IndexFunc(m.Findings, func(g Finding) bool { return g.Field == f.Field }); i >= 0 {
			m.Findings[i] = f
		} else {
			m.Findings = append(m.Findings, f)
		}
	}
	return m
}

// Idle returns m's findings for IdleTCP and IdleUDP.
func (m Measured) Idle() []Finding {
	return slices.DeleteFunc(slices.Clone(m.Findings), func(f Finding) bool { return f.Field != IdleTCP && f.Field != IdleUDP })
}

// idleSlack covers the steps between the tried idle times.
const idleSlack = 2.6

// exceeds reports whether a profile declares more than was measured, by more than the measuring
// error. Declaring less is the admin's choice.
func exceeds(field string, p overlay.SiteProfile, measured bound) bool {
	if measured.value == 0 || measured.atLeast {
		return false
	}
	more := func(declared uint64, slack float64) bool { return float64(declared) > slack*float64(measured.value) }
	switch field {
	case UDPRate:
		return p.UDPRate == 0 || more(p.UDPRate, rateSlack)
	case MTU:
		return p.MTU == 0 || more(uint64(p.MTU), 1)
	case IdleTCP:
		return more(uint64(p.IdleTCP), idleSlack)
	case IdleUDP:
		return more(uint64(p.IdleUDP), idleSlack)
	}
	return false
}
