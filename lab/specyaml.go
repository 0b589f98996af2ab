package lab

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/lab/wan"
	"gopkg.in/yaml.v3"
)

// Parse reads a spec from YAML text and checks it. Unknown and repeated keys are
// errors; each error is a *SpecError with file (used for messages only), line
// and key.
func Parse(file string, text []byte) (Spec, error) {
	r := specReader{lines: make(map[string]int)}
	spec, err := r.parse(text)
	if err == nil {
		err = spec.Check()
	}
	if err == nil {
		return spec, nil
	}
	var e *SpecError
	if !errors.As(err, &e) {
		return Spec{}, &SpecError{File: file, Err: err}
	}
	e.File = file
	if e.Line == 0 {
		e.Line = r.lineOf(e.Key)
	}
	return Spec{}, e
}

// A specReader converts YAML nodes to a Spec and remembers the line of each key, for errors that
// are found later.
type specReader struct{ lines map[string]int }

// lineOf returns the line of key or of the nearest enclosing key.
func (r *specReader) lineOf(key string) int {
	for key != "" {
		if n, ok := r.lines[key]; ok {
			return n
		}
		key = key[:max(0, strings.LastIndexAny(key, ".["))]
	}
	return 0
}

// field reads the value of one key; key is the full path for messages.
type field func(key string, n *yaml.Node) error

func (r *specReader) parse(text []byte) (Spec, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return Spec{}, err
	}
	if len(doc.Content) == 0 {
		return Spec{}, errors.New("the file is empty; it needs the key sites")
	}
	var spec Spec
	err := r.mapping("", doc.Content[0], map[string]field{
		"ipv6":   scalar(r, &spec.IPv6, parseBool),
		"window": scalar(r, &spec.Window, parseBytes),
		"wan":    func(key string, n *yaml.Node) error { return r.wan(key, n, &spec.WAN) },
		"sites":  func(key string, n *yaml.Node) error { return r.sites(key, n, &spec.Sites) },
	})
	return spec, err
}

// mapping calls the field of every key of n, in the order of the text.
func (r *specReader) mapping(path string, n *yaml.Node, fields map[string]field) error {
	if n.Kind != yaml.MappingNode {
		return r.errf(path, n, "want keys and values here (one of %s)", keyList(fields))
	}
	seen := make(map[string]bool)
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		key := k.Value
		if path != "" {
			key = path + "." + k.Value
		}
		f, ok := fields[k.Value]
		if !ok || k.Kind != yaml.ScalarNode {
			return r.errf(key, k, "unknown key; known here are %s", keyList(fields))
		}
		if seen[k.Value] {
			return r.errf(key, k, "the key is there twice")
		}
		seen[k.Value] = true
		r.lines[key] = k.Line
		if err := f(key, v); err != nil {
			return err
		}
	}
	return nil
}

func keyList(fields map[string]field) string {
	return strings.Join(slices.Sorted(maps.Keys(fields)), ", ")
}

// list calls f for every element of the sequence n.
func (r *specReader) list(key string, n *yaml.Node, f field) error {
	if n.Kind != yaml.SequenceNode {
		return r.errf(key, n, "want a list")
	}
	for i, e := range n.Content {
		k := fmt.Sprintf("%s[%d]", key, i)
		r.lines[k] = e.Line
		if err := f(k, e); err != nil {
			return err
		}
	}
	return nil
}

// scalar returns a field that parses one plain value into dst.
func scalar[T any](r *specReader, dst *T, parse func(string) (T, error)) field {
	return func(key string, n *yaml.Node) error {
		if n.Kind != yaml.ScalarNode {
			return r.errf(key, n, "want a single value")
		}
		v, err := parse(n.Value)
		if err != nil {
			return r.errf(key, n, "%w", err)
		}
		*dst = v
		return nil
	}
}

func (r *specReader) errf(key string, n *yaml.Node, format string, args ...any) error {
	return &SpecError{Line: n.Line, Key: key, Err: fmt.Errorf(format, args...)}
}

func plain(s string) (string, error) { return s, nil }

func (r *specReader) wan(key string, n *yaml.Node, dst *WAN) error {
	var def shapeChange
	fields := def.fields(r)
	fields["pairs"] = func(key string, n *yaml.Node) error {
		return r.list(key, n, func(key string, n *yaml.Node) error {
			p, err := r.pair(key, n)
			dst.Pairs = append(dst.Pairs, p)
			return err
		})
	}
	err := r.mapping(key, n, fields)
	def.apply(&dst.Default)
	return err
}

func (r *specReader) pair(key string, n *yaml.Node) (PairSpec, error) {
	var (
		p       PairSpec
		c       shapeChange
		between []string
	)
	fields := c.fields(r)
	fields["from"] = scalar(r, &p.From, plain)
	fields["to"] = scalar(r, &p.To, plain)
	fields["between"] = func(key string, n *yaml.Node) error { return r.names(key, n, &between) }
	if err := r.mapping(key, n, fields); err != nil {
		return p, err
	}
	switch {
	case between == nil && p.From != "" && p.To != "":
	case len(between) == 2 && p.From == "" && p.To == "":
		p.From, p.To, p.Both = between[0], between[1], true
	default:
		return p, r.errf(key, n, "name two sites, either with between: [a, b] for both directions or with from and to for one")
	}
	p.Apply = c.apply
	return p, nil
}

func (r *specReader) names(key string, n *yaml.Node, dst *[]string) error {
	*dst = []string{}
	return r.list(key, n, func(key string, n *yaml.Node) error {
		var s string
		err := scalar(r, &s, plain)(key, n)
		*dst = append(*dst, s)
		return err
	})
}

func (r *specReader) sites(key string, n *yaml.Node, dst *[]Site) error {
	return r.list(key, n, func(key string, n *yaml.Node) error {
		var s Site
		err := r.mapping(key, n, map[string]field{
			"name":      scalar(r, &s.Name, plain),
			"preset":    scalar(r, &s.Preset, plain),
			"gateway":   scalar(r, &s.Gateway, plain),
			"uplink":    scalar(r, &s.Uplink, parseRate),
			"burst":     scalar(r, &s.Burst, parseBytes),
			"udp-life":  scalar(r, &s.UDPLife, parseDuration),
			"cpu":       func(key string, n *yaml.Node) error { return r.cores(key, n, &s.CPU) },
			"second":    scalar(r, &s.Second, parseBool),
			"only-ipv6": scalar(r, &s.OnlyIPv6, parseBool),
			"nodes":     func(key string, n *yaml.Node) error { return r.nodes(key, n, &s.Nodes) },
		})
		if err == nil && s.Nodes == nil {
			s.Nodes = Nodes(1)
		}
		*dst = append(*dst, s)
		return err
	})
}

// cores reads one number of cores or a list of them.
func (r *specReader) cores(key string, n *yaml.Node, dst *[]float64) error {
	one := func(key string, n *yaml.Node) error {
		var v float64
		err := scalar(r, &v, parseCores)(key, n)
		*dst = append(*dst, v)
		return err
	}
	if n.Kind == yaml.SequenceNode {
		return r.list(key, n, one)
	}
	return one(key, n)
}

func parseCores(s string) (float64, error) {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is no number of cores", s)
	}
	return v, nil
}

// nodes reads a count or a list of names.
func (r *specReader) nodes(key string, n *yaml.Node, dst *[]string) error {
	if n.Kind == yaml.SequenceNode {
		return r.names(key, n, dst)
	}
	var count int
	if err := scalar(r, &count, parseCount)(key, n); err != nil {
		return err
	}
	*dst = Nodes(count)
	return nil
}

// A shapeChange holds the values given in a mapping; nil was not given.
type shapeChange struct {
	delay, jitter   *time.Duration
	loss, duplicate *float64
	rate, queue     *int64
	reorder         *bool
}

func (c *shapeChange) fields(r *specReader) map[string]field {
	return map[string]field{
		"rtt": c.once(r, func(s string) (time.Duration, error) {
			d, err := parseDuration(s)
			return d / 2, err
		}),
		"delay":     c.once(r, parseDuration),
		"jitter":    scalar(r, &c.jitter, pointer(parseDuration)),
		"loss":      scalar(r, &c.loss, pointer(parseShare)),
		"duplicate": scalar(r, &c.duplicate, pointer(parseShare)),
		"rate":      scalar(r, &c.rate, pointer(parseRate)),
		"queue":     scalar(r, &c.queue, pointer(parseBytes)),
		"reorder":   scalar(r, &c.reorder, pointer(parseBool)),
	}
}

// once reads the delay, which may be given in either of two ways but not in both.
func (c *shapeChange) once(r *specReader, parse func(string) (time.Duration, error)) field {
	return func(key string, n *yaml.Node) error {
		if c.delay != nil {
			return r.errf(key, n, "give rtt (half of it goes to each direction) or delay, not both")
		}
		return scalar(r, &c.delay, pointer(parse))(key, n)
	}
}

// apply sets the values of c in s.
func (c shapeChange) apply(s *wan.Shape) {
	set(&s.Delay, c.delay)
	set(&s.Jitter, c.jitter)
	set(&s.Loss, c.loss)
	set(&s.Duplicate, c.duplicate)
	set(&s.Rate, c.rate)
	set(&s.Reorder, c.reorder)
	if c.queue != nil {
		s.Queue = int(*c.queue)
	}
}

func set[T any](dst, v *T) {
	if v != nil {
		*dst = *v
	}
}

func pointer[T any](parse func(string) (T, error)) func(string) (*T, error) {
	return func(s string) (*T, error) {
		v, err := parse(s)
		return &v, err
	}
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
