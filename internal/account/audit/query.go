package audit

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// Filter selects records. A zero field selects all. Texts may be patterns of path.Match; a job may
// be given by a prefix of its id.
type Filter struct {
	From, To  time.Time // From <= Time < To
	User      string
	Project   string
	Job       string
	Site      string // one of Sites
	Node      string // one of Nodes
	Event     string
	Effect    string
	Technique string
	Daemon    string
	Link      string
}

// Check returns an error for an invalid pattern.
func (f Filter) Check() error {
	for _, p := range []string{f.User, f.Project, f.Job, f.Site, f.Node, f.Event, f.Effect, f.Technique, f.Daemon, f.Link} {
		if _, err := path.Match(p, ""); err != nil {
			return fmt.Errorf("%q: %w", p, err)
		}
	}
	return nil
}

// Match reports whether a record is selected.
func (f Filter) Match(r *Record) bool {
	return (f.From.IsZero() || !r.Time.Before(f.From)) && (f.To.IsZero() || r.Time.Before(f.To)) &&
		matches(f.User, r.User) && matches(f.Project, r.Project) &&
		(matches(f.Job, r.Job) || strings.HasPrefix(r.Job, f.Job)) &&
		matchesOne(f.Site, r.Sites) && matchesOne(f.Node, r.Nodes) &&
		matches(f.Event, string(r.Event)) && matches(f.Effect, r.Effect) && matches(f.Technique, r.Technique) &&
		matches(f.Daemon, r.Daemon) && matches(f.Link, r.Link)
}

func matches(pattern, text string) bool {
	if pattern == "" {
		return true
	}
	ok, _ := path.Match(pattern, text) // Check has validated the pattern
	return ok
}

func matchesOne(pattern string, texts []string) bool {
	return pattern == "" || slices.ContainsFunc(texts, func(s string) bool { return matches(pattern, s) })
}

// Read calls each for every record of the files, in their order. It counts and skips invalid lines:
// Verify judges them.
func Read(files []string, each func(*Record) error) (bad int, err error) {
	for _, name := range files {
		n, err := readFile(name, each)
		if bad += n; err != nil {
			return bad, err
		}
	}
	return bad, nil
}

func readFile(name string, each func(*Record) error) (bad int, err error) {
	f, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	in := bufio.NewReaderSize(f, 1<<16)
	for {
		line, err := readLine(in)
		if errors.Is(err, io.EOF) {
			return bad, nil // the part after the last newline is incomplete
		}
		if err != nil {
			return bad, fmt.Errorf("%s: %w", name, err)
		}
		r, err := Parse(line)
		if err != nil {
			bad++
			continue
		}
		if err := each(&r); err != nil {
			return bad, err
		}
	}
}

// Join completes records from other daemons' records about the same link. A proxy does not know
// sites: the broker's decision has them. Add every record first.
type Join struct{ byLink map[string]Record }

// Add remembers what a record says about its link.
func (j *Join) Add(r *Record) {
	if r.Link == "" || r.Event != Decision && r.Event != LinkStart {
		return
	}
	if j.byLink == nil {
		j.byLink = map[string]Record{}
	}
	k := j.byLink[r.Link]
	fill(&k, r)
	j.byLink[r.Link] = k
}

// Complete fills in the missing fields of r.
func (j *Join) Complete(r *Record) {
	if k, ok := j.byLink[r.Link]; ok && r.Link != "" {
		fill(r, &k)
	}
}

func fill(r, from *Record) {
	r.User, r.Project, r.Job = cmp.Or(r.User, from.User), cmp.Or(r.Project, from.Project), cmp.Or(r.Job, from.Job)
	r.Technique, r.Relay = cmp.Or(r.Technique, from.Technique), cmp.Or(r.Relay, from.Relay)
	if len(r.Sites) < len(from.Sites) {
		r.Sites = from.Sites
	}
	if len(r.Nodes) < len(from.Nodes) {
		r.Nodes = from.Nodes
	}
	if len(r.Ranks) < len(from.Ranks) {
		r.Ranks = from.Ranks
	}
}

// Keys lists the keys by which sums can be grouped.
var Keys = []string{"user", "project", "job", "sites", "technique", "relay", "daemon", "event", "effect", "rule", "month", "day", "hour"}

// Sum adds up records in groups. A link that several daemons carried, such as two gateways and a
// proxy, is in each one's log: it is counted once, by the record with the most bytes, if the
// records name the link.
type Sum struct {
	By   []string       // some of Keys
	Zone *time.Location // for month, day and hour

	groups map[string]*Group
	links  map[string]Record // ends of links, by id: the one with the most bytes
	// Unnamed lists the daemons that wrote link ends without the link's id, with the number of
	// these. With more than one daemon in it, the sums may count a link twice.
	Unnamed map[string]uint64
}

// Group is a sum of records that agree in By.
type Group struct {
	By       map[string]string `json:"by,omitempty"`
	Records  uint64            `json:"records"` // including those that a record stands for
	Bytes    uint64            `json:"bytes"`   // in both directions
	Sent     uint64            `json:"sent"`
	Received uint64            `json:"received"`
	Seconds  float64           `json:"seconds"`
}

// Check returns an error for an unknown key.
func (s *Sum) Check() error {
	for _, key := range s.By {
		if !slices.Contains(Keys, key) {
			return fmt.Errorf("cannot group by %q; there are %s", key, strings.Join(Keys, ", "))
		}
	}
	return nil
}

// Add adds one record.
func (s *Sum) Add(r *Record) {
	if s.groups == nil {
		s.groups, s.links, s.Unnamed = map[string]*Group{}, map[string]Record{}, map[string]uint64{}
	}
	switch {
	case r.Event != LinkEnd:
		s.count(r)
	case r.Link == "":
		s.Unnamed[r.Daemon]++
		s.count(r)
	default:
		before, twice := s.links[r.Link]
		more := cmp.Or(cmp.Compare(r.Sent+r.Received, before.Sent+before.Received), cmp.Compare(r.Seconds, before.Seconds))
		if !twice || more > 0 {
			s.links[r.Link] = *r
		}
	}
}

func (s *Sum) count(r *Record) {
	by := make(map[string]string, len(s.By))
	var id strings.Builder
	for _, key := range s.By {
		by[key] = s.value(r, key)
		fmt.Fprintf(&id, "%q", by[key])
	}
	g := s.groups[id.String()]
	if g == nil {
		g = &Group{By: by}
		s.groups[id.String()] = g
	}
	g.Records += max(r.Count, 1)
	g.Bytes += r.Sent + r.Received
	g.Sent += r.Sent
	g.Received += r.Received
	g.Seconds += r.Seconds
}

// value returns a record's value for a key.
func (s *Sum) value(r *Record, key string) string {
	t := r.Time.In(s.Zone)
	switch key {
	case "user":
		return r.User
	case "project":
		return r.Project
	case "job":
		return r.Job
	case "sites": // in either direction
		return strings.Join(slices.Sorted(slices.Values(r.Sites)), " ")
	case "technique":
		return r.Technique
	case "relay":
		return r.Relay
	case "daemon":
		return r.Daemon
	case "event":
		return string(r.Event)
	case "effect":
		return r.Effect
	case "rule":
		return r.Rule
	case "month":
		return t.Format("2006-01")
	case "day":
		return t.Format(time.DateOnly)
	case "hour":
		return t.Format("2006-01-02 15")
	}
	panic("audit: no key " + key) // Check has validated it
}

// Groups returns the sums, the most bytes first. Call it once, after all Adds.
func (s *Sum) Groups() []*Group {
	for _, r := range s.links {
		s.count(&r)
	}
	var out []*Group
	for _, g := range s.groups {
		out = append(out, g)
	}
	text := func(g *Group) string {
		var b strings.Builder
		for _, key := range s.By {
			fmt.Fprintf(&b, "%q", g.By[key])
		}
		return b.String()
	}
	slices.SortFunc(out, func(a, b *Group) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(b.Records, a.Records), strings.Compare(text(a), text(b)))
	})
	return out
}
