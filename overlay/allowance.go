package overlay

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Allowance is what a rule of a site's policy allows one owner: a number of links at a time, a
// rate, and bytes per month. The daemon that carries the counted links enforces it. A zero bound is
// no bound; the zero Allowance is none at all.
type Allowance struct {
	Site    SiteID // the site whose policy it is
	Rule    string // the rule of that policy
	Owner   string // whose links count together: "project climate", "user alice@sitea"
	Contact string // contact at the site
	Links   uint32 // at a time
	Rate    uint64 // bits per second, both directions together
	Month   uint64 // bytes in a calendar month, UTC, both directions together
}

// MaxAllowances is the maximum number per link: one of each end's site.
const MaxAllowances = 2

// Bounds of an Allowance's texts, in bytes.
const (
	maxOwnerLen   = 160
	maxContactLen = 200
)

// Key identifies what is counted: an owner's links under one rule of one site, as "SITE/RULE
// OWNER".
func (a Allowance) Key() string { return fmt.Sprintf("%s/%s %s", a.Site, a.Rule, a.Owner) }

// Check returns what is wrong with an allowance, or nil.
func (a Allowance) Check() error {
	if err := CheckName("site", string(a.Site)); err != nil {
		return err
	}
	if err := CheckName("rule", a.Rule); err != nil {
		return err
	}
	for _, t := range []struct {
		what, text string
		most       int
	}{{"owner", a.Owner, maxOwnerLen}, {"contact", a.Contact, maxContactLen}} {
		if t.text == "" || len(t.text) > t.most || !utf8.ValidString(t.text) || strings.ContainsFunc(t.text, func(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 }) {
			return fmt.Errorf("%s of an allowance: %.40q, want 1 to %d bytes of text", t.what, t.text, t.most)
		}
	}
	if a.Links == 0 && a.Rate == 0 && a.Month == 0 {
		return fmt.Errorf("an allowance of %s that bounds nothing", a.Key())
	}
	return nil
}

// Owner returns whose links count together in an allowance: those of a project; without one, those
// of a user; for an unknown principal, those of the job.
func (p Principal) Owner(job JobID) string {
	switch {
	case p.Project != "":
		return "project " + p.Project
	case p.User != "":
		return "user " + p.User
	}
	return "job " + string(job)
}
