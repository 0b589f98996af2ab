// Package jobgroups encodes the groups of a job for its processes: one line of text in the
// environment, such as "master:1,workers:32". Ranks are numbered group by group, so names and
// counts determine the group of each rank.
//
// Launchers write the line, and the message library reads it. The package depends on neither and
// keeps no state.
package jobgroups

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/isthmus-grid/isthmus/overlay"
)

// Env is the variable that holds the line. Without it a job has no groups.
const Env = "ISTHMUS_GROUPS"

// MaxGroups is the maximum number of groups of a job.
const MaxGroups = 256

// Group is a name, as overlay.CheckName allows, and its number of ranks.
type Group struct {
	Name  string
	Count int
}

// Layout is the groups of a job in the order of their ranks.
type Layout []Group

// String returns the line.
func (l Layout) String() string {
	texts := make([]string, len(l))
	for i, g := range l {
		texts[i] = g.Name + ":" + strconv.Itoa(g.Count)
	}
	return strings.Join(texts, ",")
}

// Of returns the index of the group that a rank of the job's world is in, or -1.
func (l Layout) Of(rank int) int {
	for i := range l {
		if rank < l[i].Count && rank >= 0 {
			return i
		}
		rank -= l[i].Count
	}
	return -1
}

// Parse reads the line for a world of size ranks; the groups must have that many ranks. Empty text
// means no groups.
func Parse(text string, size int) (Layout, error) {
	if text == "" {
		return nil, nil
	}
	if n := 1 + strings.Count(text, ","); n > MaxGroups {
		return nil, fmt.Errorf("%d groups; at most %d", n, MaxGroups)
	}
	var l Layout
	sum := 0
	seen := map[string]bool{}
	for part := range strings.SplitSeq(text, ",") {
		name, digits, ok := strings.Cut(part, ":")
		n, err := strconv.ParseUint(digits, 10, 31)
		if !ok || err != nil || n == 0 || int(n) > size-sum {
			return nil, fmt.Errorf("groups %.200q: %.100q; want NAME:COUNT between commas, and counts that add up to the %d ranks", text, part, size)
		}
		if err := overlay.CheckName("group", name); err != nil {
			return nil, fmt.Errorf("groups %.200q: %w", text, err)
		}
		if seen[name] {
			return nil, fmt.Errorf("groups %.200q: group %s is given twice", text, name)
		}
		seen[name] = true
		sum += int(n)
		l = append(l, Group{Name: name, Count: int(n)})
	}
	if sum != size {
		return nil, fmt.Errorf("groups %.200q: %d ranks in all groups, and %d in the job", text, sum, size)
	}
	return l, nil
}
