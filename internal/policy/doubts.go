package policy

import (
	"errors"
	"fmt"
	"slices"

	"github.com/isthmus-grid/isthmus/internal/daemon"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Examine parses a policy and looks for rules that are valid but probably unintended: a rule that
// an earlier one shadows completely, limits that exclude all techniques that a rule allows. The
// faults are those of Parse; with any, there are no doubts.
func Examine(file string, text []byte) (p *Policy, faults, doubts daemon.Faults) {
	p, origin, err := parse(file, text)
	if err != nil {
		if f, ok := errors.AsType[daemon.Faults](err); ok {
			return nil, f, nil
		}
		return nil, daemon.Faults{{Origin: file, Err: err}}, nil
	}
	doubt := func(key, format string, args ...any) {
		doubts = append(doubts, daemon.Fault{Origin: origin(key), Key: key, Err: fmt.Errorf(format, args...)})
	}
	if len(p.Rules) == 0 {
		doubt("rules", "there are none, so every link with another site is refused")
	}
	if p.Mode == DryRun {
		doubt("mode", "%s: nothing is refused, only logged; write %s when the log shows what you expect", DryRun, Enforce)
	}
	hours := make([]*[week]bool, len(p.Rules))
	for i, r := range p.Rules {
		hours[i] = minutes(r.Hours)
		for j, earlier := range p.Rules[:i] {
			if earlier.shadows(r) && subset(hours[i], hours[j]) {
				doubt(fmt.Sprintf("rules[%d]", i), "rule %q is never reached: %q before it matches everything that it matches", r.Name, earlier.Name)
				break
			}
		}
		if r.Limits != (Limits{}) && len(r.Techniques) > 0 && !slices.Contains(r.Techniques, overlay.Relay) {
			doubt(fmt.Sprintf("rules[%d].limits", i), "only a relay can keep limits, and techniques do not name relay: the rule allows nothing")
		}
	}
	return p, nil, doubts
}

// shadows reports whether r matches every link that later matches, apart from hours.
func (r Rule) shadows(later Rule) bool {
	if !coversAll(r.Sites, later.Sites) || !coversAll(r.Jobs, later.Jobs) {
		return false
	}
	if r.Effect == Allow && later.Effect == Deny {
		// The later rule needs one end, whatever the other is.
		return len(r.Users) == 0 && len(r.Projects) == 0
	}
	return coversAll(r.Users, later.Users) && coversAll(r.Projects, later.Projects)
}

// coversAll reports whether every name that matches one of others matches one of patterns. No
// patterns match everything, unknown names included.
func coversAll(patterns, others []string) bool {
	if len(patterns) == 0 {
		return true
	}
	return len(others) > 0 && !slices.ContainsFunc(others, func(other string) bool {
		return !slices.ContainsFunc(patterns, func(p string) bool { return covers(p, other) })
	})
}

func subset(inner, outer *[week]bool) bool {
	for i, in := range inner {
		if in && !outer[i] {
			return false
		}
	}
	return true
}
