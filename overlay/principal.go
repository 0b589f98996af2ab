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

// Principal is the user and project on whose behalf a job works. The zero Principal is unknown: so
// are those of processes whose helper names none.
type Principal struct {
	// User is a user of the grid if the job carries a grant. Otherwise it is ACCOUNT@SITE: the
	// helper of a node vouches for the account, by the credentials of the process's socket, and its
	// site for the helper.
	User string `json:"user"`

	// Project is from the grant; empty without.
	Project string `json:"project,omitempty"`
}

// AccountAt returns the Principal of an account at a site, which has presented no grant.
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

// IsSet reports whether the principal is not the zero Principal.
func (p Principal) IsSet() bool { return p != Principal{} }

// Site returns the site of the account, or "" for a user of the grid and for an unknown principal.
func (p Principal) Site() SiteID {
	_, site, _ := strings.Cut(p.User, "@")
	return SiteID(site)
}

// Check returns what is wrong with the principal, or nil. Only users of the grid have projects; an
// account has none.
func (p Principal) Check() error {
	if !p.IsSet() {
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

// CheckVouched returns why a helper of the site by cannot vouch for the principal, or nil: a helper
// knows the accounts of its site, but neither those of other sites nor users of the grid.
func (p Principal) CheckVouched(by SiteID) error {
	if !p.IsSet() {
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

// CheckAccount returns what is wrong with the name of an account at a node, or nil. A name is 1 to
// MaxAccountLen bytes of printable ASCII without '@' and '/', because it is part of ACCOUNT@SITE
// and ACCOUNT@SITE/NODE.
func CheckAccount(name string) error {
	if name == "" || len(name) > MaxAccountLen || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' || r == '@' || r == '/' }) {
		return fmt.Errorf("%.70q is no user's name", name)
	}
	return nil
}
