package quota

import (
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"time"

	"github.com/isthmus-grid/isthmus/internal/limit"
)

// Ledger counts bytes by user, project and policy allowance in one calendar month, UTC. It is not
// safe for concurrent use.
type Ledger struct {
	month    string // as 2026-11; "" before the first count
	users    byName
	projects byName
	allowed  byName // by overlay.Allowance.Key
}

type byName = limit.Bounded[string, uint64]

// maxNames bounds the names of each kind. Further names are counted under one name, so that their
// bytes are not lost.
const maxNames = 1 << 16

const otherNames = "(others)"

const monthLayout = "2006-01"

// NewLedger returns an empty ledger.
func NewLedger() *Ledger {
	none := byName{Max: maxNames, Other: otherNames}
	return &Ledger{users: none, projects: none, allowed: none}
}

// begin drops all counts.
func (l *Ledger) begin(month string) {
	*l = *NewLedger()
	l.month = month
}

// Add counts n bytes for a user and, unless it is "", a project.
func (l *Ledger) Add(user, project string, n uint64, now time.Time) {
	l.StartMonth(now)
	*l.users.At(user) += n
	if project != "" {
		*l.projects.At(project) += n
	}
}

// addAllowed counts n bytes for the key of an overlay.Allowance.
func (l *Ledger) addAllowed(key string, n uint64, now time.Time) {
	l.StartMonth(now)
	*l.allowed.At(key) += n
}

// StartMonth drops the counts of a month that is over, and reports whether it did. A clock that goes back
// to an earlier month has no effect: counts would be lost.
func (l *Ledger) StartMonth(now time.Time) bool {
	month := now.UTC().Format(monthLayout)
	if month <= l.month {
		return false
	}
	turned := l.month != ""
	l.begin(month)
	return turned
}

// User returns a user's count in now's month.
func (l *Ledger) User(name string, now time.Time) uint64 { return l.read(&l.users, name, now) }

// Project returns a project's count in now's month.
func (l *Ledger) Project(name string, now time.Time) uint64 { return l.read(&l.projects, name, now) }

// Allowed returns the count in now's month under the key of an overlay.Allowance.
func (l *Ledger) Allowed(key string, now time.Time) uint64 { return l.read(&l.allowed, key, now) }

func (l *Ledger) read(counts *byName, name string, now time.Time) uint64 {
	if now.UTC().Format(monthLayout) > l.month {
		return 0
	}
	return counts.Get(name)
}

// Merge adds the counts of another ledger for the same month. It ignores those of an earlier month;
// those of a later one replace l's own.
func (l *Ledger) Merge(other *Ledger) {
	switch {
	case other.month < l.month:
		return
	case other.month > l.month:
		l.begin(other.month)
	}
	addAll(&l.users, other.users.All())
	addAll(&l.projects, other.projects.All())
	addAll(&l.allowed, other.allowed.All())
}

func addAll(to *byName, counts iter.Seq2[string, uint64]) {
	for name, n := range counts {
		*to.At(name) += n
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
	return json.Marshal(ledgerFile{
		ledgerVersion, l.month, maps.Collect(l.users.All()), maps.Collect(l.projects.All()), maps.Collect(l.allowed.All()),
	})
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
		return fmt.Errorf("%q is not a month; want one such as 2026-11", f.Month)
	}
	if len(f.Users) > maxNames+1 || len(f.Projects) > maxNames+1 || len(f.Allowed) > maxNames+1 {
		return fmt.Errorf("more than %d names", maxNames)
	}
	l.begin(f.Month)
	addAll(&l.users, maps.All(f.Users))
	addAll(&l.projects, maps.All(f.Projects))
	addAll(&l.allowed, maps.All(f.Allowed))
	return nil
}
