package broker

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/broker/decide"
	"github.com/isthmus-grid/isthmus/internal/account/traffic"
	"github.com/isthmus-grid/isthmus/overlay"
)

// maxRows bounds each table of the status page, which is readable then, and cheap to render, however
// large the grid is.
const maxRows = 200

// gridView is the first page.
type gridView struct {
	Status
	Now       time.Time
	Processes int
	Up        int // sites
	Map       mapView
	Pairs     []pairRow
	MorePairs int // pairs beyond those in Pairs
	SiteRows  []siteRow
	MoreSites int
	JobRows   []jobRow
	MoreJobs  int
	MoreFlows int // flows beyond those in the tables of the terminal
	Faults    []countRow
}

type siteRow struct {
	SiteStatus
	Firewall string
	HostText string // "12 up; 1 away: n3"
	Others   string // sessions with other brokers: "connected to b2"
}

type jobRow struct {
	Job   overlay.JobID
	Sites string // "sitea 4, siteb 4"
	For   string // "alice (fusion)"
	Total int
}

type countRow struct {
	What  string
	Count uint64
}

// pairRow is an ordered pair of sites.
type pairRow struct {
	Asker, Target overlay.SiteID
	Kind          string  // class of the line on the map: open, traversal, relay, planned, failing, none
	Now           string  // the technique that connected last; "": none did
	SetupMS       float64 // setup time of that
	Plan          string  // the technique tried first
	Why           string  // the reason for it
	Connected     uint64  // attempts
	Failed        uint64
	Trouble       string // the last failure, if no success is known since
	Beside        string // failures of other techniques than the one that connected
	Traffic       trafficView
	plan          overlay.Plan
}

// viewGrid returns the first page.
func viewGrid(s Status, hosts hostLister, now time.Time) gridView {
	v := gridView{Status: s.withoutServices(), Now: now}
	s = v.Status
	for _, site := range s.Sites {
		v.Processes += site.Processes
		if site.Connected {
			v.Up++
		}
	}
	sites := slices.Clone(s.Sites)
	slices.SortStableFunc(sites, func(a, b SiteStatus) int { return cmp.Compare(a.Profile.Site, b.Profile.Site) })
	v.Sites = sites
	for _, site := range firstOf(sites, &v.MoreSites) {
		v.SiteRows = append(v.SiteRows, siteRow{site, firewall(site.Profile), hostsText(site.Hosts, hosts(site.Profile.Site)), brokersText(site, s.Broker)})
	}
	pairs := pairRows(sites, s.Outcomes, s.Kinds)
	addTraffic(pairs, s.Traffic)
	v.Map = drawMap(v.Status, pairs, hosts)
	v.Pairs = firstOf(pairs, &v.MorePairs)
	for _, j := range firstOf(s.Jobs, &v.MoreJobs) {
		v.JobRows = append(v.JobRows, rowOfJob(j))
	}
	for _, what := range slices.Sorted(maps.Keys(s.Counters.Faults)) {
		v.Faults = append(v.Faults, countRow{what, s.Counters.Faults[what]})
	}
	return v
}

// withoutServices returns the status without the jobs over which node services are reached, which no
// user has started.
func (s Status) withoutServices() Status {
	services := map[overlay.SiteID]int{}
	jobs := slices.Clone(s.Jobs)
	s.Jobs = slices.DeleteFunc(jobs, func(j JobStatus) bool {
		_, isService := j.Job.ServiceNode()
		if isService {
			for site, n := range j.Processes {
				services[site] += n
			}
		}
		return isService
	})
	s.Sites = slices.Clone(s.Sites)
	for i := range s.Sites {
		s.Sites[i].Processes -= services[s.Sites[i].Profile.Site]
	}
	return s
}

// firstOf returns the first maxRows, and sets more to the number of the rest.
func firstOf[T any](all []T, more *int) []T {
	if len(all) <= maxRows {
		return all
	}
	*more = len(all) - maxRows
	return all[:maxRows]
}

func rowOfJob(j JobStatus) jobRow {
	row := jobRow{Job: j.Job}
	var at, who []string
	for _, site := range slices.Sorted(maps.Keys(j.Processes)) {
		at = append(at, fmt.Sprintf("%s %d", site, j.Processes[site]))
		row.Total += j.Processes[site]
	}
	for _, p := range j.For {
		text := cmp.Or(p.User, "unknown")
		if p.Project != "" {
			text += " (" + p.Project + ")"
		}
		if !slices.Contains(who, text) {
			who = append(who, text)
		}
	}
	row.Sites, row.For = strings.Join(at, ", "), strings.Join(who, ", ")
	return row
}

// firewall describes in a line what a profile lets through.
func firewall(p overlay.SiteProfile) string {
	in := "nothing in"
	switch p.Inbound {
	case overlay.InboundOpen:
		in = "all in"
	case overlay.InboundPorts:
		in = fmt.Sprintf("ports %v in", p.Ports)
	}
	text := in + ", " + p.Egress.String() + " out"
	if p.NAT.Translates() {
		text += ", NAT"
	}
	if p.Sessions > 0 {
		text += " without room for new connections"
	}
	if p.GatewayOnly {
		text += ", nodes by the gateway"
	}
	return text
}

// pairRows returns the ordered pairs of sites: those with outcomes first, then those that are only
// planned, both by name. Beyond maxMapSites sites the planned ones are left out: there would be too
// many plans to compute.
func pairRows(sites []SiteStatus, outcomes []OutcomeStatus, proxies []decide.ProxyKind) []pairRow {
	known := map[overlay.SiteID]SiteStatus{}
	for _, s := range sites {
		known[s.Profile.Site] = s
	}
	reported := map[direction][]OutcomeStatus{}
	for _, o := range outcomes {
		pair := direction{o.Asker, o.Target}
		_, a := known[o.Asker]
		_, b := known[o.Target]
		if a && b && o.Asker != o.Target {
			reported[pair] = append(reported[pair], o)
		}
	}
	var pairs []direction
	for pair := range reported {
		pairs = append(pairs, pair)
	}
	if len(sites) <= maxMapSites {
		for _, a := range sites {
			for _, b := range sites {
				pair := direction{a.Profile.Site, b.Profile.Site}
				if _, has := reported[pair]; !has && pair.asker != pair.target {
					pairs = append(pairs, pair)
				}
			}
		}
	}
	slices.SortStableFunc(pairs, func(a, b direction) int {
		return cmp.Or(cmp.Compare(min(1, len(reported[b])), min(1, len(reported[a]))), cmp.Compare(a.asker, b.asker), cmp.Compare(a.target, b.target))
	})
	var rows []pairRow
	for _, pair := range pairs {
		rows = append(rows, rowOfPair(known[pair.asker], known[pair.target], reported[pair], proxies))
		if len(rows) >= 4*maxRows {
			break // a page shows no more
		}
	}
	return rows
}

// rowOfPair describes how one site connects to another.
func rowOfPair(asker, target SiteStatus, outcomes []OutcomeStatus, proxies []decide.ProxyKind) pairRow {
	row := pairRow{Asker: asker.Profile.Site, Target: target.Profile.Site, plan: decide.Decide(asker.Profile, target.Profile, proxies)}
	if len(row.plan.Steps) > 0 {
		row.Plan, row.Why = row.plan.Steps[0].Technique.String(), row.plan.Steps[0].Reason
	}
	var good, bad OutcomeStatus
	for _, o := range outcomes {
		row.Connected += o.Connected
		row.Failed += o.Failed
		if o.ConnectedAt.After(good.ConnectedAt) {
			good = o
		}
		if o.FailedAt.After(bad.FailedAt) {
			bad = o
		}
	}
	if !good.ConnectedAt.IsZero() {
		row.Now, row.SetupMS = good.Technique.String(), good.SetupMS
	}
	// A link tries its techniques concurrently, and later successes of the one that connected are
	// not reported. So only that technique's own failure is trouble; a failure of another one cost
	// the link nothing.
	switch trouble := fmt.Sprintf("%v: %s", bad.Technique, bad.Reason); {
	case bad.FailedAt.IsZero():
	case good.ConnectedAt.IsZero():
		row.Trouble = trouble
	case good.FailedAt.After(good.ConnectedAt):
		row.Trouble = fmt.Sprintf("%v: %s", good.Technique, good.Reason)
	case bad.Technique != good.Technique:
		row.Beside = trouble
	}
	switch {
	case row.Plan == "":
		row.Kind = "none"
	case row.Trouble != "":
		row.Kind = "failing"
	case row.Now == "":
		row.Kind = "planned"
	default:
		row.Kind = kindOf(good.Technique)
	}
	return row
}

// kindOf classifies techniques by what they need: an open port, both ends at once, or a proxy.
func kindOf(t overlay.Technique) string {
	switch t.Kind() {
	case overlay.AskerDials, overlay.TargetDials:
		return "open"
	case overlay.ByProxy:
		return "relay"
	}
	return "traversal"
}

// pairView is the page of one ordered pair.
type pairView struct {
	Broker        string
	Now           time.Time
	Asker, Target SiteStatus
	Ends          []siteRow
	Row           pairRow
	Steps         []stepRow
	Rejected      []overlay.Rejection
	Flows         []traffic.Flow // both directions
	Latest        []outcome
	Kept          int // outcomes of all pairs that the broker keeps
}

type stepRow struct {
	overlay.Step
	Way      string        // "via both gateways"
	Outcome  OutcomeStatus // as reported
	Reported bool          // an outcome was reported
}

// viewPair returns the page of a pair; false if either site is not known.
func viewPair(s Status, latest []outcome, asker, target overlay.SiteID, now time.Time) (pairView, bool) {
	s = s.withoutServices()
	v := pairView{Broker: s.Broker, Now: now, Latest: latest, Kept: maxLatest}
	found := 0
	for _, site := range s.Sites {
		if site.Profile.Site == asker {
			v.Asker, found = site, found+1
		}
		if site.Profile.Site == target {
			v.Target, found = site, found+1
		}
	}
	if found != 2 || asker == target {
		return v, false
	}
	var there, back []OutcomeStatus
	of := map[overlay.Technique]OutcomeStatus{}
	for _, o := range s.Outcomes {
		if o.Asker == asker && o.Target == target {
			there = append(there, o)
			of[o.Technique] = o
		}
		if o.Asker == target && o.Target == asker {
			back = append(back, o)
		}
	}
	v.Ends = []siteRow{{SiteStatus: v.Asker, Firewall: firewall(v.Asker.Profile)}, {SiteStatus: v.Target, Firewall: firewall(v.Target.Profile)}}
	rows := []pairRow{rowOfPair(v.Asker, v.Target, there, s.Kinds), rowOfPair(v.Target, v.Asker, back, s.Kinds)}
	addTraffic(rows, s.Traffic)
	v.Row = rows[0]
	for _, f := range s.Traffic {
		if f.From == asker && f.To == target || f.From == target && f.To == asker {
			v.Flows = append(v.Flows, f)
		}
	}
	v.Flows = v.Flows[:min(len(v.Flows), maxRows)]
	for _, step := range v.Row.plan.Steps {
		row := stepRow{Step: step}
		if via := step.Via.String(); via != "" {
			row.Way = "via " + via
		}
		row.Outcome, row.Reported = of[step.Technique]
		v.Steps = append(v.Steps, row)
	}
	v.Rejected = v.Row.plan.Rejected
	return v, true
}

// milliseconds formats a duration given in ms.
func milliseconds(ms float64) string {
	switch {
	case ms == 0:
		return "-"
	case ms < 10:
		return fmt.Sprintf("%.1f ms", ms)
	case ms < 1000:
		return fmt.Sprintf("%.0f ms", ms)
	}
	return fmt.Sprintf("%.1f s", ms/1000)
}

// ago formats an elapsed time.
func ago(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", max(int(d.Seconds()), 0))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// clip truncates a text to n characters.
func clip(text string, n int) string {
	r := []rune(text)
	if len(r) <= n {
		return text
	}
	return string(r[:n-1]) + "…"
}

// direction is an ordered pair of sites.
type direction struct{ asker, target overlay.SiteID }
