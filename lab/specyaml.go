package lab

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/internal/daemon"
	"github.com/isthmus-grid/isthmus/lab/wan"
)

// Parse reads a spec from YAML text and checks it. Unknown and repeated keys are errors. The error,
// a daemon.Faults, lists all of them by file, line and key; file is the name to call the text by.
func Parse(file string, text []byte) (Spec, error) {
	f, _, err := daemon.Document[specFile](file, text)
	if err != nil {
		return Spec{}, err
	}
	return f.spec()
}

// The structs below are a spec as it is written.
type (
	specFile struct {
		IPv6   bool       `yaml:"ipv6" help:"IPv6 for all sites whose gateway does not translate addresses."`
		Window quantity   `yaml:"window" help:"Most bytes of a TCP connection's buffer in each direction, on every host."`
		WAN    wanFile    `yaml:"wan" help:"The paths between sites."`
		Sites  []siteFile `yaml:"sites" help:"The sites."`
	}
	wanFile struct {
		Shape shapeFile  `yaml:",inline"`
		Pairs []pairFile `yaml:"pairs" help:"Exceptions, of which a later one wins."`
	}
	pairFile struct {
		Between []string  `yaml:"between" help:"Two sites or endpoints, for both directions."`
		From    string    `yaml:"from" help:"A site or an endpoint, for one direction."`
		To      string    `yaml:"to" help:"A site or an endpoint, for one direction."`
		Shape   shapeFile `yaml:",inline"`
	}
	siteFile struct {
		Name     string     `yaml:"name" help:"Name of the site."`
		Preset   string     `yaml:"preset" help:"Kind of the site."`
		Gateway  string     `yaml:"gateway" help:"Host name of the gateway."`
		Uplink   quantity   `yaml:"uplink" help:"Rate of the gateway's access link in each direction."`
		Burst    quantity   `yaml:"burst" help:"Bytes that pass an idle access link at once."`
		UDPLife  quantity   `yaml:"udp-life" help:"Life of UDP mappings."`
		CPU      []float64  `yaml:"cpu" help:"Cores for each node's commands, in the order of the nodes."`
		Second   bool       `yaml:"second" help:"A second uplink."`
		OnlyIPv6 bool       `yaml:"only-ipv6" help:"IPv6, and no route out over IPv4."`
		Nodes    []quantity `yaml:"nodes" default:"1" help:"A number of nodes, or their names."`
	}
	shapeFile struct {
		RTT       quantity `yaml:"rtt" help:"Round-trip time, half of which goes to each direction."`
		Delay     quantity `yaml:"delay" help:"Delay of one direction."`
		Jitter    quantity `yaml:"jitter" help:"What is added to the delay at most."`
		Loss      quantity `yaml:"loss" help:"Share of packets that is lost."`
		Duplicate quantity `yaml:"duplicate" help:"Share of packets that arrives twice."`
		Rate      quantity `yaml:"rate" help:"Rate of each direction."`
		Queue     quantity `yaml:"queue" help:"Bytes that wait at most."`
		Reorder   quantity `yaml:"reorder" help:"Whether jitter reorders packets."`
	}
)

// A quantity is a number with or without a unit; empty, it was not given.
type quantity string

// UnmarshalText lets a quantity be a YAML number.
func (q *quantity) UnmarshalText(text []byte) error {
	*q = quantity(text)
	return nil
}

// Check implements the check of package daemon.
func (f specFile) Check() error {
	s, err := f.spec()
	if err != nil {
		return err
	}
	return s.Check()
}

// spec converts f; the error names every quantity that is none.
func (f specFile) spec() (Spec, error) {
	s := Spec{IPv6: f.IPv6}
	errs := []error{
		set("window", &s.Window, f.Window, parseBytes),
		f.WAN.Shape.apply("wan", &s.WAN.Default),
	}
	for i, p := range f.WAN.Pairs {
		pair, err := p.pair(fmt.Sprintf("wan.pairs[%d]", i))
		s.WAN.Pairs, errs = append(s.WAN.Pairs, pair), append(errs, err)
	}
	for i, one := range f.Sites {
		site, err := one.site(fmt.Sprintf("sites[%d]", i))
		s.Sites, errs = append(s.Sites, site), append(errs, err)
	}
	return s, errors.Join(errs...)
}

func (f pairFile) pair(key string) (PairSpec, error) {
	p := PairSpec{From: f.From, To: f.To}
	switch {
	case f.Between == nil && p.From != "" && p.To != "":
	case len(f.Between) == 2 && p.From == "" && p.To == "":
		p.From, p.To, p.Both = f.Between[0], f.Between[1], true
	default:
		return p, daemon.Wrong(key, "name two sites, either with between: [a, b] for both directions or with from and to for one")
	}
	p.Apply = func(s *wan.Shape) { _ = f.Shape.apply("", s) } // the call below returns the error
	return p, f.Shape.apply(key, new(wan.Shape))
}

func (f siteFile) site(key string) (Site, error) {
	s := Site{Name: f.Name, Preset: f.Preset, Gateway: f.Gateway, CPU: f.CPU, Second: f.Second, OnlyIPv6: f.OnlyIPv6}
	for _, n := range f.Nodes {
		s.Nodes = append(s.Nodes, string(n))
	}
	var err error
	if len(f.Nodes) == 1 && strings.Trim(s.Nodes[0], "-.0123456789") == "" {
		var count int
		err = set(key+".nodes", &count, f.Nodes[0], parseCount)
		s.Nodes = Nodes(count)
	}
	return s, errors.Join(err,
		set(key+".uplink", &s.Uplink, f.Uplink, parseRate),
		set(key+".burst", &s.Burst, f.Burst, parseBytes),
		set(key+".udp-life", &s.UDPLife, f.UDPLife, parseDuration))
}

// apply sets the values of s that are given.
func (f shapeFile) apply(key string, s *wan.Shape) error {
	if f.RTT != "" && f.Delay != "" {
		return daemon.Wrong(key+".delay", "give rtt (half of it goes to each direction) or delay, not both")
	}
	rtt, queue := 2*s.Delay, int64(s.Queue)
	err := errors.Join(
		set(key+".delay", &s.Delay, f.Delay, parseDuration),
		set(key+".rtt", &rtt, f.RTT, parseDuration),
		set(key+".jitter", &s.Jitter, f.Jitter, parseDuration),
		set(key+".loss", &s.Loss, f.Loss, parseShare),
		set(key+".duplicate", &s.Duplicate, f.Duplicate, parseShare),
		set(key+".rate", &s.Rate, f.Rate, parseRate),
		set(key+".queue", &queue, f.Queue, parseBytes),
		set(key+".reorder", &s.Reorder, f.Reorder, parseBool),
	)
	if f.RTT != "" {
		s.Delay = rtt / 2
	}
	s.Queue = int(queue)
	return err
}

// set parses a quantity into dst, if it was given.
func set[T any](key string, dst *T, q quantity, parse func(string) (T, error)) error {
	if q == "" {
		return nil
	}
	v, err := parse(string(q))
	if err != nil {
		return daemon.Wrong(key, "%w", err)
	}
	*dst = v
	return nil
}

func parseBool(s string) (bool, error) {
	if s != "true" && s != "false" {
		return false, fmt.Errorf("%q is neither true nor false", s)
	}
	return s == "true", nil
}

func parseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 || d > time.Minute {
		return 0, fmt.Errorf("%q is no duration between 0s and 1m; write it like 10ms", s)
	}
	return d, nil
}

// parseShare parses a probability written as 0.01 or 1%.
func parseShare(s string) (float64, error) {
	number, percent := strings.CutSuffix(s, "%")
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if percent {
		v /= 100
	}
	if err != nil || !(v >= 0 && v <= 1) {
		return 0, fmt.Errorf("%q is no share; write it like 0.5%% or 0.005, up to 1", s)
	}
	return v, nil
}

// ParseRate parses a rate in bit/s as written in a Spec's file, such as 136Mbit.
func ParseRate(s string) (int64, error) { return parseRate(s) }

// ParseBytes parses a size as written in a Spec's file, such as 256KiB.
func ParseBytes(s string) (int64, error) { return parseBytes(s) }

// parseRate parses bits per second with an optional unit.
func parseRate(s string) (int64, error) {
	v, err := parseUnit(s, map[string]float64{"bit": 1, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9})
	if err != nil {
		return 0, fmt.Errorf("%q is no rate; write it like 100Mbit or 1Gbit (bits per second)", s)
	}
	return v, nil
}

// parseBytes parses a number of bytes with an optional unit.
func parseBytes(s string) (int64, error) {
	v, err := parseUnit(s, map[string]float64{"b": 1, "kb": 1e3, "mb": 1e6, "kib": 1 << 10, "mib": 1 << 20})
	if err != nil || v > math.MaxInt32 {
		return 0, fmt.Errorf("%q is no size; write it like 256KiB or 2MB, below 2 GiB", s)
	}
	return v, nil
}

// parseUnit parses a non-negative number and its unit, case-insensitively.
func parseUnit(s string, units map[string]float64) (int64, error) {
	digits := strings.TrimRight(strings.ToLower(s), "abcdefghijklmnopqrstuvwxyz ")
	factor := 1.0
	if unit := strings.TrimSpace(strings.ToLower(s)[len(digits):]); unit != "" {
		f, ok := units[unit]
		if !ok {
			return 0, fmt.Errorf("unknown unit %q", unit)
		}
		factor = f
	}
	v, err := strconv.ParseFloat(digits, 64)
	if err != nil || !(v >= 0 && v*factor < 1e15) {
		return 0, fmt.Errorf("%q is out of range", s)
	}
	return int64(v * factor), nil
}

func parseCount(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > MaxNodes {
		return 0, fmt.Errorf("%q is neither a list of names nor a count between 1 and %d", s, MaxNodes)
	}
	return n, nil
}
