package ca

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/isthmus-grid/isthmus/overlay"
)

// hostPattern is one element of a list of hosts as Slurm writes it: n[01-04,7]-ib, or
// gpu3. A range has numbers of the same width, or unpadded ones.
type hostPattern struct {
	before, after string
	ranges        []hostRange // no range: before is the name
}

type hostRange struct {
	from, to uint64
	width    int // of padded numbers; 0: unpadded
}

// parseHosts reads a list of hosts.
func parseHosts(list string) ([]hostPattern, error) {
	var all []hostPattern
	for list != "" {
		end := strings.IndexByte(list, ',')
		if open := strings.IndexByte(list, '['); open >= 0 && (end < 0 || open < end) {
			shut := strings.IndexByte(list, ']')
			if shut < open {
				return nil, fmt.Errorf("nodes %q: a '[' without a ']'", list)
			}
			if end = strings.IndexByte(list[shut:], ','); end >= 0 {
				end += shut
			}
		}
		one, rest := list, ""
		if end >= 0 {
			one, rest = list[:end], list[end+1:]
		}
		p, err := parseHost(one)
		if err != nil {
			return nil, err
		}
		all, list = append(all, p), rest
	}
	return all, nil
}

func parseHost(text string) (p hostPattern, err error) {
	before, rest, open := strings.Cut(text, "[")
	if p.before = before; !open {
		return p, overlay.CheckName("node", before)
	}
	inside, after, _ := strings.Cut(rest, "]")
	p.after = after
	if err := overlay.CheckName("node", before+"0"+after); err != nil {
		return p, fmt.Errorf("nodes %q: %w", text, err)
	}
	for one := range strings.SplitSeq(inside, ",") {
		low, high, isRange := strings.Cut(one, "-")
		if !isRange {
			high = low
		}
		var r hostRange
		var errs [2]error
		r.from, errs[0] = strconv.ParseUint(low, 10, 63)
		r.to, errs[1] = strconv.ParseUint(high, 10, 63)
		if errs != [2]error{} || r.to < r.from {
			return p, fmt.Errorf("nodes %q: %q is no range of numbers such as 01-16", text, one)
		}
		if strings.HasPrefix(low, "0") && len(low) > 1 || len(low) == len(high) {
			r.width = len(low)
		}
		p.ranges = append(p.ranges, r)
	}
	return p, nil
}

// checkHosts returns an error if a list of hosts is invalid.
func checkHosts(list string) error {
	_, err := parseHosts(list)
	return err
}

// listsHost reports whether a host is in a list.
func listsHost(list, host string) bool {
	all, err := parseHosts(list)
	if err != nil {
		return false
	}
	for _, p := range all {
		if p.matches(host) {
			return true
		}
	}
	return false
}

func (p hostPattern) matches(host string) bool {
	if len(p.ranges) == 0 {
		return host == p.before
	}
	digits, ok := strings.CutPrefix(host, p.before)
	if ok {
		digits, ok = strings.CutSuffix(digits, p.after)
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	if !ok || err != nil {
		return false
	}
	for _, r := range p.ranges {
		want := strconv.FormatUint(n, 10)
		if r.width > 0 {
			want = fmt.Sprintf("%0*d", r.width, n)
		}
		if r.from <= n && n <= r.to && digits == want {
			return true
		}
	}
	return false
}
