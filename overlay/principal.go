package overlay

import (
	"fmt"
	"strings"
)

// MaxAccountLen is the longest name of an account at a node, and MaxUserLen the
// longest Principal.User, both in bytes.
const (
	MaxAccountLen = 64
	MaxUserLen    = MaxAccountLen + 1 + MaxNameLen
)

// Principal is on whose behalf a job works. The zero Principal is unknown: so
// are those of processes whose helper says nothing.
type Principal struct {
	// User is a user of the grid where the job carries a grant. Else it is
	// ACCOUNT@SITE: the helper of a node vouches for the account, by the
	// credentials of the process's socket, and its site for the helper.
	User string `json:"user"`

	// Project is from the grant; empty without.
	Project string `json:"project,omitempty"`
}

// AccountAt returns the Principal of an account at a site, which has shown no
// grant.
func AccountAt(account string, site SiteID) Principal {
	return Principal{User: account + "@" + string(site)}
}

// String returns "USER", "USER for PROJECT" or "unknown".
func (p Principal) String() string {
	switch {
	case p.User == "":
		return "unknown"
	case p.Project == "":
		return p.User
	}
	return p.User + " for " + p.Project
}

// Known reports whether somebody has said who it is.
func (p Principal) Known() bool { return p != Principal{} }

// Site returns the site whose account it is, or "" for a user of the grid and
// for nobody.
func (p Principal) Site() SiteID {
	_, site, _ := strings.Cut(p.User, "@")
	return SiteID(site)
}

// Check says what is wrong with the principal, or returns nil. Projects belong
// to users of the grid: an account has none.
func (p Principal) Check() error {
	if !p.Known() {
		return nil
	}
	account, site, ok := strings.Cut(p.User, "@")
	switch {
	case !ok:
		if err := CheckName("user", p.User); err != nil {
			return err
		}
	case p.Project != "":
		return fmt.Errorf("project %.70q of %.140q: only a grant names a project", p.Project, p.User)
	default:
		if err := CheckAccount(account); err != nil {
			return err
		}
		return CheckName("site", site)
	}
	if p.Project == "" {
		return nil
	}
	return CheckName("project", p.Project)
}

// CheckVouched says why the word of a site's helper is not enough for the
// principal, or returns nil: a helper knows the accounts of its site, and
// neither other sites' nor users of the grid.
func (p Principal) CheckVouched(by SiteID) error {
	if !p.Known() {
		return nil
	}
	if err := p.Check(); err != nil {
		return err
	}
	if p.Site() != by {
		return fmt.Errorf("%w: %s vouches for accounts of its own, ACCOUNT@%s, not for %s", ErrForbidden, by, by, p)
	}
	return nil
}

// CheckAccount says what is wrong with the name of an account at a node, or
// returns nil. A name is 1 to MaxAccountLen bytes of ASCII that a terminal can
// show, without '@' and '/': it is part of ACCOUNT@SITE and ACCOUNT@SITE/NODE.
func CheckAccount(name string) error {
	if name == "" || len(name) > MaxAccountLen || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' || r == '@' || r == '/' }) {
		return fmt.Errorf("%.70q is no user's name", name)
	}
	return nil
}
