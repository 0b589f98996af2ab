package quota

import (
	"encoding/json"
	"fmt"
	"time"
)

// Ledger counts bytes by user, project and policy allowance in one calendar month, UTC. It is not
// safe for concurrent use.
type Ledger struct {
	month    string // as 2026-11; "" before the first count
	users    map[string]uint64
	projects map[string]uint64
	allowed  map[string]uint64 // by overlay.Allowance.Key
}

// maxNames bounds the names of each kind. Further names are counted under one name, so that their
// bytes are not lost.
const maxNames = 1 << 16

const otherNames = "(others)"

const monthLayout = "2006-01"

// NewLedger returns an empty ledger.
func NewLedger() *Ledger {
	return &Ledger{users: map[string]uint64{}, projects: map[string]uint64{}, allowed: map[string]uint64{}}
}

// Add counts n bytes for a user and, unless it is "", a project.
func (l *Ledger) Add(user, project string, n uint64, now time.Time) {
	l.Turn(now)
	addTo(l.users, user, n)
	if project != "" {
		addTo(l.projects, project, n)
	}
}

// addAllowed counts n bytes for the key of an overlay.Allowance.
func (l *Ledger) addAllowed(key string, n uint64, now time.Time) {
	l.Turn(now)
	addTo(l.allowed, key, n)
}

func addTo(counts map[string]uint64, name string, n uint64) {
	if _, known := counts[name]; !known && len(counts) >= maxNames {
		name = otherNames
	}
	counts[name] += n
}

// Turn drops the counts of a month that is over, and reports whether it did. A clock that goes back
// to an earlier month has no effect: counts would be lost.
func (l *Ledger) Turn(now time.Time) bool {
	month := now.UTC().Format(monthLayout)
	if month <= l.month {
		return false
	}
	turned := l.month != ""
	l.month = month
	clear(l.users)
	clear(l.projects)
	clear(l.allowed)
	return turned
}

// User returns a user's count in now's month.
func (l *Ledger) User(name string, now time.Time) uint64 { return l.read(l.users, name, now) }

// Project returns a project's count in now's month.
func (l *Ledger) Project(name string, now time.Time) uint64 { return l.read(l.projects, name, now) }

// Allowed returns the count in now's month under the key of an overlay.Allowance.
func (l *Ledger) Allowed(key string, now time.Time) uint64 { return l.read(l.allowed, key, now) }

func (l *Ledger) read(counts map[string]uint64, name string, now time.Time) uint64 {
	if now.UTC().Format(monthLayout) > l.month {
		return 0
	}
	n, known := counts[name]
	if !known && len(counts) >= maxNames {
		return counts[otherNames]
	}
	return n
}

// Merge adds the counts of another ledger for the same month. It ignores those of an earlier month;
// those of a later one replace l's own.
func (l *Ledger) Merge(other *Ledger) {
	switch {
	case other.month < l.month:
		return
	case other.month > l.month:
		l.month = other.month
		clear(l.users)
		clear(l.projects)
		clear(l.allowed)
	}
	for name, n := range other.allowed {
		addTo(l.allowed, name, n)
	}
	for name, n := range other.users {
		addTo(l.users, name, n)
	}
	for name, n := range other.projects {
		addTo(l.projects, name, n)
	}
}

// monthEnd returns the first day of the next month, when counts restart.
func monthEnd(now time.Time) string {
	y, m, _ := now.UTC().Date()
	return time.Date(y, m+1, 1, 0, 0, 0, 0, time.UTC).Format("2006-01-02")
}

// ledgerFile is a stored Ledger.
type ledgerFile struct {
	Version  int               `json:"version"`
	Month    string            `json:"month"`
	Users    map[string]uint64 `json:"users"`
	Projects map[string]uint64 `json:"projects"`
	Allowed  map[string]uint64 `json:"allowed,omitempty"`
}

const ledgerVersion = 1

// MarshalJSON writes the form that UnmarshalJSON reads.
func (l *Ledger) MarshalJSON() ([]byte, error) {
	return json.Marshal(ledgerFile{ledgerVersion, l.month, l.users, l.projects, l.allowed})
}

// UnmarshalJSON replaces l by a stored ledger.
func (l *Ledger) UnmarshalJSON(text []byte) error {
	var f ledgerFile
	if err := json.Unmarshal(text, &f); err != nil {
		return err
	}
	if f.Version != ledgerVersion {
		return fmt.Errorf("version %d of a month's counts, this program knows %d", f.Version, ledgerVersion)
	}
	if _, err := time.Parse(monthLayout, f.Month); err != nil && f.Month != "" {
		return fmt.Errorf("%q is no month; want one as 2026-11", f.Month)
	}
	if len(f.Users) > maxNames+1 || len(f.Projects) > maxNames+1 || len(f.Allowed) > maxNames+1 {
		return fmt.Errorf("more than %d names", maxNames)
	}
	read := NewLedger()
	read.month = f.Month
	for name, n := range f.Users {
		read.users[name] = n
	}
	for name, n := range f.Projects {
		read.projects[name] = n
	}
	for name, n := range f.Allowed {
		read.allowed[name] = n
	}
	*l = *read
	return nil
}
