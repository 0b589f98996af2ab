// Package policy decides which links between sites a site permits: to which sites, for which
// projects, users and jobs, by which techniques, at which hours and within which limits. Every site
// has one policy; a link needs the consent of both its ends' sites (Agree).
//
// Everything here is a pure function of its arguments, time included. The package knows no sockets
// and no daemons, and keeps no state: broker and frontals decide when to evaluate it, enforce the
// result, and define what counts as a link.
package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/isthmus-grid/isthmus/internal/daemon"
	"github.com/isthmus-grid/isthmus/internal/limit/quota"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Bounds of a policy. A frontal sends its site's policy to the broker.
const (
	MaxText  = 256 << 10 // bytes of a file
	maxRules = 500
	maxWords = 1000 // patterns of one rule under one key
)

// Modes.
const (
	Enforce = "enforce" // what the rules refuse is refused
	DryRun  = "dry-run" // what the rules refuse is logged and permitted
)

// Effects of a rule.
const (
	Allow = "allow"
	Deny  = "deny"
)

// Policy is what one site permits, by its file. A policy without rules permits nothing. It is
// immutable after Parse.
type Policy struct {
	Mode    string `yaml:"mode" default:"enforce" enum:"enforce,dry-run" help:"Whether links that the rules do not allow are refused, or only logged (dry-run)."`
	Contact string `yaml:"contact" required:"true" example:"grid@sitea.example.org" help:"Contact for users whose links are refused. It is part of the error."`
	Zone    Zone   `yaml:"zone" default:"UTC" help:"The time zone of all hours, as Europe/Berlin; UTC if not given."`
	Rules   []Rule `yaml:"rules" help:"In order: the first rule that matches a link decides. A link that no rule matches is refused."`
}

// Rule decides about the links that match it. Each key that is present must match; a list matches
// when one of its patterns does.
type Rule struct {
	Name   string `yaml:"name" required:"true" help:"Name of the rule in errors, logs and the audit log."`
	Effect string `yaml:"effect" required:"true" enum:"allow,deny" help:"Decision for a link that the rule matches."`

	Sites    []string `yaml:"sites" help:"Sites at the other end. Without it, all."`
	Projects []string `yaml:"projects" help:"Projects, as a user's grant names them. Without it, all, and jobs without a grant."`
	Users    []string `yaml:"users" help:"Users: of the grid, by their grant, or NAME@SITE without one. Without it, all."`
	Jobs     []string `yaml:"jobs" help:"Names of jobs, which their users choose. Without it, all."`
	Hours    []Hours  `yaml:"hours" help:"When the rule applies. Without it, always. A link set up during these hours stays up afterwards."`

	Techniques []overlay.Technique `yaml:"techniques" help:"Permitted techniques. Without it, all. Only with allow."`
	Limits     Limits              `yaml:"limits" help:"Limits. Only with allow. Proxies enforce them, so a rule with limits allows no technique other than relay."`
}

// Limits bound what a rule allows. Zero is unlimited. Each site's limits apply separately, to all
// of an owner's links that match its rule, whatever the other ends are.
type Limits struct {
	Links      int         `yaml:"links" json:"links,omitempty" min:"0" help:"Relayed connections of one project (without a grant: of one user) at a time; more are refused. 0 is no limit."`
	Rate       quota.Rate  `yaml:"rate" json:"rate,omitempty" help:"Rate of those links together, both directions together, such as 100Mbit/s; none is no limit."`
	BytesMonth daemon.Size `yaml:"bytes_month" json:"bytes_month,omitempty" min:"0" help:"Bytes they may carry in one calendar month (UTC), both directions together, such as 2TB. After that, links continue slowly and new links are refused. 0 is no limit."`
}

// Parse parses a policy strictly. The error, a daemon.Faults, lists all errors by file, line and
// key; file is the name to call the text by.
func Parse(file string, text []byte) (*Policy, error) {
	p, _, err := parse(file, text)
	return p, err
}

func parse(file string, text []byte) (*Policy, func(string) string, error) {
	whole := func(err error) (*Policy, func(string) string, error) {
		return nil, nil, daemon.Faults{{Origin: file, Err: err}}
	}
	if len(text) > MaxText {
		return whole(fmt.Errorf("%d bytes, at most %d are read", len(text), MaxText))
	}
	// An alias could make a small text a large policy, which a broker accepts from every site.
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err == nil {
		if n := aliased(&doc); n != nil {
			return whole(fmt.Errorf("line %d: *%s repeats what stands elsewhere; write it out, a policy must be readable as written", n.Line, n.Value))
		}
	}
	p, origin, err := daemon.Document[Policy](file, text)
	if err != nil {
		return nil, nil, err
	}
	return &p, origin, nil
}

func aliased(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n
	}
	for _, c := range n.Content {
		if a := aliased(c); a != nil {
			return a
		}
	}
	return nil
}

// Text returns the policy as a text that Parse accepts, without the comments of its file: a frontal
// sends that to the broker.
func (p *Policy) Text() []byte {
	text, err := yaml.Marshal(p)
	if err != nil {
		panic("policy: " + err.Error()) // it consists of words and numbers
	}
	return text
}

// Limited reports whether a rule sets limits that must be enforced.
func (p *Policy) Limited() bool {
	return p.Mode != DryRun && slices.ContainsFunc(p.Rules, func(r Rule) bool { return r.Limits != (Limits{}) })
}

// Check implements the check of package daemon.
func (p Policy) Check() error {
	var errs []error
	wrong := func(key, format string, args ...any) { errs = append(errs, daemon.Wrong(key, format, args...)) }
	if len(p.Rules) > maxRules {
		wrong("rules", "%d rules, at most %d are allowed", len(p.Rules), maxRules)
		return errors.Join(errs...)
	}
	if bad := unprintable(p.Contact); bad != "" || len(p.Contact) > 200 {
		wrong("contact", "want at most 200 bytes of text on one line%s", bad)
	}
	first := map[string]int{}
	for i, r := range p.Rules {
		if before, twice := first[r.Name]; twice {
			wrong(fmt.Sprintf("rules[%d].name", i), "%q is the name of rules[%d] already", r.Name, before)
		}
		first[r.Name] = i
	}
	return errors.Join(errs...)
}

// Check implements the check of package daemon.
func (r Rule) Check() error {
	var errs []error
	wrong := func(key, format string, args ...any) { errs = append(errs, daemon.Wrong(key, format, args...)) }
	if err := overlay.CheckName("rule", r.Name); err != nil {
		wrong("name", "%v", err)
	}
	for _, c := range r.criteria() {
		if len(c.patterns) > maxWords {
			wrong(c.key, "%d patterns, at most %d are allowed", len(c.patterns), maxWords)
			continue
		}
		for i, pattern := range c.patterns {
			if err := checkPattern(c.key, pattern); err != nil {
				wrong(fmt.Sprintf("%s[%d]", c.key, i), "%v", err)
			}
		}
	}
	if a, b, overlap := overlapping(r.Hours); overlap {
		wrong(fmt.Sprintf("hours[%d]", b), "overlaps hours[%d]; give each hour of the week once", a)
	}
	if r.Effect == Deny {
		if len(r.Techniques) > 0 {
			wrong("techniques", "a rule that denies refuses the link by every technique; name the techniques that remain in a rule that allows")
		}
		if r.Limits != (Limits{}) {
			wrong("limits", "a rule that denies has no limits")
		}
	}
	return errors.Join(errs...)
}

// criteria returns a rule's criteria that are lists of patterns.
func (r Rule) criteria() []criterion {
	return []criterion{{"sites", r.Sites}, {"projects", r.Projects}, {"users", r.Users}, {"jobs", r.Jobs}}
}

type criterion struct {
	key      string
	patterns []string
}

// checkPattern returns an error for an invalid pattern: one that can match no name is a mistake
// that would go unnoticed.
func checkPattern(key, pattern string) error {
	if pattern == "" || len(pattern) > 2*overlay.MaxNameLen+1 {
		return fmt.Errorf("a pattern of %d bytes, want 1 to %d", len(pattern), 2*overlay.MaxNameLen+1)
	}
	if bad := unprintable(pattern); bad != "" {
		return fmt.Errorf("%q cannot be part of a name%s", pattern, bad)
	}
	if key == "users" {
		return nil // an operating system's names may have any letters
	}
	for _, c := range []byte(pattern) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && !strings.ContainsRune("-_.*?", rune(c)) {
			return fmt.Errorf("%q fits nothing: names of %s have a-z, 0-9, '-', '_' and '.'; in a pattern, * stands for any text and ? for one character", pattern, key)
		}
	}
	return nil
}

// unprintable returns "" for text that a log line can hold, else what is wrong.
func unprintable(text string) string {
	for _, r := range text {
		if r < ' ' || r == 0x7f || r == '\uFFFD' || r > 0x7e && r < 0xa0 {
			return fmt.Sprintf(": it holds %q", r)
		}
	}
	return ""
}
