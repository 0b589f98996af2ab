package broker

import (
	"fmt"
	"io"
	"time"

	"github.com/isthmus-grid/isthmus/internal/printable"
	"github.com/isthmus-grid/isthmus/launch/offer"
	"github.com/isthmus-grid/isthmus/overlay"
)

// WriteTable writes the content of the status page as tables for a terminal. No text of
// others controls the terminal.
func (s Status) WriteTable(out io.Writer, now time.Time) error {
	v := viewGrid(s, func(overlay.SiteID) []offer.Host { return nil }, now) // a status has no more than their number
	t := &table{printable.NewTable(out)}
	t.line("broker %s: up for %s, %d of %d sites connected, %s, %s, %s", s.Broker, ago(now.Sub(s.Started)), v.Up, len(s.Sites),
		plural(v.Processes, "process", "processes"), plural(len(v.Jobs), "job", "jobs"), plural(len(s.Proxies), "proxy", "proxies"))
	if s.Store != nil && s.Store.Error != "" {
		t.line("%s, since %s ago: used tokens, revocations and published names cannot be kept, and what needs that is refused", s.Store.Error, ago(now.Sub(s.Store.Since)))
	}
	t.head("site", "state", "since", "rtt", "processes", "nodes up", "firewall")
	for _, r := range v.SiteRows {
		state := "away"
		if r.Connected {
			state = "connected"
		}
		t.row(r.Profile.Site, state, ago(now.Sub(r.Since)), milliseconds(r.RTTMS), r.Processes, r.Hosts.Up, r.Firewall)
		for _, d := range r.Differs {
			t.row("", "", "", "", "", "", fmt.Sprintf("measured otherwise: %s is %v, not %v", d.Field, d.Measured, d.Declared))
		}
	}
	t.moreRows(v.MoreSites, "sites")
	if len(v.Pairs) > 0 {
		t.head("from", "to", "connected by", "set-up", "carried now, in all", "failed", "tried first, or what fails")
	}
	for _, r := range v.Pairs {
		by, why := r.Now, r.Plan+": "+r.Why
		switch {
		case r.Plan == "":
			by, why = "no path", fmt.Sprintf("nothing can join them: isthmus plan %s %s", r.Asker, r.Target)
		case by == "":
			by = "no link yet"
		}
		if r.Beside != "" {
			why += "; also tried, without success: " + r.Beside
		}
		if r.Trouble != "" {
			why = "now failing: " + r.Trouble
		}
		t.row(r.Asker, r.Target, by, milliseconds(r.SetupMS), r.Traffic.Text(), r.Failed, why)
	}
	t.moreRows(v.MorePairs, "pairs")
	flows := firstOf(s.Traffic, &v.MoreFlows)
	if len(flows) > 0 {
		t.head("from", "to", "carried by", "links", "rate", "in all", "waits", "held back by")
	}
	for _, f := range flows {
		held := "-"
		switch {
		case f.Held:
			held = fmt.Sprintf("now: %s, %v", f.Rule, f.RuleRate)
		case f.Rule != "":
			held = fmt.Sprintf("last: %s, %v", f.Rule, f.RuleRate)
		}
		t.row(f.From, f.To, f.By, f.Links, bitRate(f.Rate), byteSize(f.Bytes), f.Waits, held)
	}
	t.moreRows(v.MoreFlows, "lines of what was carried")
	if len(s.Proxies) > 0 {
		t.head("proxy", "links", "capacity", "assigned", "draining")
	}
	for _, p := range s.Proxies {
		t.row(p.Name, p.Live, p.Capacity, p.Assigned, p.Draining)
	}
	if len(v.JobRows) > 0 {
		t.head("job", "processes", "at", "for")
	}
	for _, j := range v.JobRows {
		t.row(j.Job, j.Total, j.Sites, j.For)
	}
	t.moreRows(v.MoreJobs, "jobs")
	return t.Flush()
}

// table is a table with lines between its parts.
type table struct{ *printable.Table }

func (t *table) line(format string, args ...any) {
	t.Row(fmt.Sprintf(format, args...))
}

func (t *table) head(columns ...any) {
	t.Row()
	t.row(columns...)
}

func (t *table) row(columns ...any) {
	for i, c := range columns {
		columns[i] = clip(fmt.Sprint(c), 160)
	}
	t.Row(columns...)
}

func (t *table) moreRows(n int, what string) {
	if n > 0 {
		t.line("and %d more %s", n, what)
	}
}
