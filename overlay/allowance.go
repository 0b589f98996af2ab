package overlay

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Allowance is what a rule of a site's policy allows one owner: so many links
// at a time, at such a rate, so many bytes a month. Whoever carries the links
// that it counts keeps it. Zero bounds are none; the zero Allowance is none at
// all.
type Allowance struct {
	Site    SiteID // whose policy it is
	Rule    string // of that policy
	Owner   string // whose links count together: "project climate", "user alice@sitea"
	Contact string // whom to ask at the site
	Links   uint32 // at a time
	Rate    uint64 // bits per second, both directions together
	Month   uint64 // bytes in a calendar month, UTC, both directions together
}

// MaxAllowances is how many a link has at most: one of each end's site.
const MaxAllowances = 2

// Bounds of an Allowance's texts, in bytes.
const (
	maxOwnerLen   = 160
	maxContactLen = 200
)

// Key names what is counted: an owner's links under one rule of one site. It
// is "SITE/RULE OWNER".
func (a Allowance) Key() string { return fmt.Sprintf("%s/%s %s", a.Site, a.Rule, a.Owner) }

// Check says what is wrong with an allowance, or returns nil.
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

// Owner says whose links count together in an allowance: those of a project,
// without one those of a user, and of nobody known those of a job.
func (p Principal) Owner(job JobID) string {
	switch {
	case p.Project != "":
		return "project " + p.Project
	case p.User != "":
		return "user " + p.User
	}
	return "job " + string(job)
}
