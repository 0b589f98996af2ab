package quota

import (
	"fmt"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// Rules are the limits of one daemon. A zero limit is unlimited.
type Rules struct {
	Rate    Rate // of all links together
	User    Limits
	Project Limits
	Job     Limits // its Month is ignored
	Trickle Rate   // for an owner who has used up the month; 0 counts as DefaultTrickle
}

// Limits are those of each user, of each project or of each job. Bytes of both directions of a link
// count together.
type Limits struct {
	Links int    // concurrent
	Rate  Rate   // of all the owner's links together
	Month uint64 // bytes in a calendar month, UTC
}

// DefaultTrickle is the default rate for an owner who has used up the month.
const DefaultTrickle Rate = 1e6

// Lowest returns the lowest rate to which the rules limit a link, with a project or without, and
// the key of its setting; 0 and "" if there is none. It does not include the effect of a month that
// is used up.
func (r Rules) Lowest(project bool) (Rate, string) {
	low, key := Rate(0), ""
	for level, rate := range map[int]Rate{atTotal: r.Rate, atUser: r.User.Rate, atProject: r.Project.Rate, atJob: r.Job.Rate} {
		if rate == 0 || level == atProject && !project {
			continue
		}
		if key == "" || rate < low || rate == low && levelKeys[level] < key {
			low, key = rate, levelKeys[level]
		}
	}
	return low, key
}

func (r Rules) minRate() Rate {
	if r.Trickle == 0 {
		return DefaultTrickle
	}
	return r.Trickle
}

// Owner is on whose behalf a link is carried.
type Owner struct {
	User    string // "": unknown; then every job counts as a user of its own
	Project string // "": none; then no project's limit applies
	Job     overlay.JobID

	// Allowances are the allowances by the policies of the ends' sites, at most
	// overlay.MaxAllowances, with different keys. They come with the link; the rules of the daemon
	// apply in addition.
	Allowances []overlay.Allowance
}

// user returns the name under which the owner's usage is counted.
func (o Owner) user() string {
	if o.User == "" {
		return "job " + string(o.Job)
	}
	return o.User
}

// Quota applies Rules to links. It is not safe for concurrent use.
type Quota struct {
	rules    Rules
	total    *stage
	users    map[string]*stage
	projects map[string]*stage
	jobs     map[overlay.JobID]*stage
	allowed  map[string]*allowance // by overlay.Allowance.Key
	lines    []*stage              // stages with waiting requests
	ledger   *Ledger
	fresh    *Ledger // the part of ledger counted since Fresh
}

// New returns a Quota whose month's counts continue from ledger, which it owns from then on; nil
// starts at zero.
func New(rules Rules, ledger *Ledger, now time.Time) *Quota {
	if ledger == nil {
		ledger = NewLedger()
	}
	q := &Quota{
		total: newStage(now),
		users: map[string]*stage{}, projects: map[string]*stage{}, jobs: map[overlay.JobID]*stage{},
		allowed: map[string]*allowance{},
		ledger:  ledger, fresh: NewLedger(),
	}
	q.SetRules(rules, now)
	return q
}

func newStage(now time.Time) *stage {
	return &stage{bucket: bucket{at: now}, sharers: map[string]*class{}}
}

// Rules returns the current rules.
func (q *Quota) Rules() Rules { return q.rules }

// SetRules changes the rules, for live links too. A lowered limit on links ends none. Advance must
// be called afterwards.
func (q *Quota) SetRules(rules Rules, now time.Time) {
	q.rules = rules
	q.total.setRate(rules.Rate, now)
	for name, s := range q.users {
		s.setRate(q.userRate(name, now), now)
	}
	for name, s := range q.projects {
		s.setRate(q.projectRate(name, now), now)
	}
	for _, s := range q.jobs {
		s.setRate(rules.Job.Rate, now)
	}
	for _, a := range q.allowed {
		a.setRate(q.allowedRate(a.Allowance, now), now)
	}
}

func (q *Quota) userRate(name string, now time.Time) Rate {
	return q.rateOf(q.rules.User, q.ledger.User(name, now))
}

func (q *Quota) projectRate(name string, now time.Time) Rate {
	return q.rateOf(q.rules.Project, q.ledger.Project(name, now))
}

func (q *Quota) rateOf(l Limits, used uint64) Rate {
	if exceeded(used, l.Month) && (l.Rate == 0 || q.rules.minRate() < l.Rate) {
		return q.rules.minRate()
	}
	return l.Rate
}

// allowedRate returns the rate of a policy's allowance for one owner.
func (q *Quota) allowedRate(a overlay.Allowance, now time.Time) Rate {
	return q.rateOf(Limits{Rate: Rate(min(a.Rate, maxRate)), Month: a.Month}, q.ledger.Allowed(a.Key(), now))
}

func exceeded(used, month uint64) bool { return month > 0 && used >= month }

// Refused means that the quota has no room for a link. It is an overlay.ErrOverloaded.
type Refused struct {
	Key  string // of the limiting setting: quota.per_user.links, for instance, or policy.links of a site's policy
	Text string // one sentence for the requester
}

// Error returns Text.
func (r *Refused) Error() string { return r.Text }

// Unwrap returns the error's class.
func (r *Refused) Unwrap() error { return overlay.ErrOverloaded }

// Admission is an admitted link.
type Admission struct {
	owner  Owner
	flows  [2]Flow
	stages [stages]*stage // nil: no such stage
	class  [stages]*class // the link's class at each stage
}

// Flow is one direction of a link. It has at most one request at a time.
type Flow struct {
	link  *Admission
	next  *Flow // after it in the class
	want  int   // bytes of the request
	level int   // of the stage where it waits; stages if it does not wait
}

// Link returns the link that f is a direction of.
func (f *Flow) Link() *Admission { return f.link }

// Owner returns on whose behalf the link is carried.
func (l *Admission) Owner() Owner { return l.owner }

// Flow returns the link's flow in direction 0 or 1.
func (l *Admission) Flow(dir int) *Flow { return &l.flows[dir] }

// Admit reserves a place for a link, or returns a *Refused with the reason. Every admitted link
// must be released.
func (q *Quota) Admit(o Owner, now time.Time) (*Admission, error) {
	if err := q.refuse(o, now); err != nil {
		return nil, err
	}
	l := &Admission{owner: o}
	for i, a := range o.Allowances {
		l.stages[atAllowances+i] = q.allowance(a, now)
	}
	l.stages[atTotal] = q.total
	l.stages[atUser] = stageOf(q.users, o.user(), func() Rate { return q.userRate(o.user(), now) }, now)
	l.stages[atJob] = stageOf(q.jobs, o.Job, func() Rate { return q.rules.Job.Rate }, now)
	if o.Project != "" {
		l.stages[atProject] = stageOf(q.projects, o.Project, func() Rate { return q.projectRate(o.Project, now) }, now)
	}
	for level, s := range l.stages {
		if s == nil {
			continue
		}
		s.links++
		if level == atJob || level == atUser {
			l.class[level] = new(class)
			continue
		}
		c := s.sharers[o.user()]
		if c == nil {
			c = new(class)
			s.sharers[o.user()] = c
		}
		c.links++
		l.class[level] = c
	}
	for i := range l.flows {
		l.flows[i] = Flow{link: l, level: stages}
	}
	return l, nil
}

// stageOf returns the stage of that name, and creates it if needed.
func stageOf[K comparable](all map[K]*stage, name K, rate func() Rate, now time.Time) *stage {
	s := all[name]
	if s == nil {
		s = newStage(now)
		s.setRate(rate(), now)
		all[name] = s
	}
	return s
}

func (q *Quota) refuse(o Owner, now time.Time) error {
	links := func(s *stage) int {
		if s == nil {
			return 0
		}
		return s.links
	}
	project := o.Project != ""
	if err := q.refuseAllowances(o, now); err != nil {
		return err
	}
	switch {
	case full(links(q.jobs[o.Job]), q.rules.Job.Links):
		return &Refused{"quota.per_job.links", fmt.Sprintf("job %s has %d links here already, as many as a job may have (quota.per_job.links)", o.Job, q.rules.Job.Links)}
	case full(links(q.users[o.user()]), q.rules.User.Links):
		return &Refused{"quota.per_user.links", fmt.Sprintf("%s has %d links here already, as many as a user may have (quota.per_user.links)", o.user(), q.rules.User.Links)}
	case project && full(links(q.projects[o.Project]), q.rules.Project.Links):
		return &Refused{"quota.per_project.links", fmt.Sprintf("project %s has %d links here already, as many as a project may have (quota.per_project.links)", o.Project, q.rules.Project.Links)}
	case exceeded(q.ledger.User(o.user(), now), q.rules.User.Month):
		return &Refused{"quota.per_user.bytes_month", fmt.Sprintf("%s has used up the %d bytes that a user may move here in a month, until %s (quota.per_user.bytes_month)",
			o.user(), q.rules.User.Month, monthEnd(now))}
	case project && exceeded(q.ledger.Project(o.Project, now), q.rules.Project.Month):
		return &Refused{"quota.per_project.bytes_month", fmt.Sprintf("project %s has used up the %d bytes that a project may move here in a month, until %s (quota.per_project.bytes_month)",
			o.Project, q.rules.Project.Month, monthEnd(now))}
	}
	return nil
}

func full(have, most int) bool { return most > 0 && have >= most }

// Release releases the link's place and drops requests of its flows.
func (q *Quota) Release(l *Admission) {
	for i := range l.flows {
		q.Cancel(&l.flows[i])
	}
	for level, s := range l.stages {
		if s == nil {
			continue
		}
		s.links--
		if c := l.class[level]; level != atJob && level != atUser {
			if c.links--; c.links == 0 {
				delete(s.sharers, l.owner.user())
			}
		}
	}
	// An overdrawn bucket is kept until it is full again, because otherwise a new link would erase
	// the debt: Advance drops it.
}

// Paced reports whether a request of the link may have to wait.
func (l *Admission) Paced() bool {
	for _, s := range l.stages {
		if s != nil && s.rate != 0 {
			return true
		}
	}
	return false
}

var levelKeys = [stages]string{atJob: "quota.per_job.rate", atProject: "quota.per_project.rate", atUser: "quota.per_user.rate", atTotal: "quota.rate"}

// Limit returns the lowest rate that the link is limited to, shared with others of its kind, and
// its origin: the key of the setting, or a site's policy. 0 and "" if there is none.
func (l *Admission) Limit() (Rate, string) {
	low, key := 0.0, ""
	for level, s := range l.stages {
		if s != nil && s.rate != 0 && (key == "" || s.rate < low) {
			low, key = s.rate, l.key(level)
		}
	}
	return Rate(low * 8), key
}

// key returns the origin of the rate of a stage.
func (l *Admission) key(level int) string {
	if i := level - atAllowances; i >= 0 && level < atTotal {
		return "policy of " + l.owner.Allowances[i].Key()
	}
	return levelKeys[level]
}

// WaitsFor returns the rate that f waits for, which it shares with others, and its origin, as
// Admission.Limit does; 0 and "" if it does not wait.
func (f *Flow) WaitsFor() (Rate, string) {
	if f.level == stages {
		return 0, ""
	}
	return Rate(f.link.stages[f.level].rate * 8), f.link.key(f.level)
}

// Ask requests that some of have bytes, which must be more than none, may pass. It returns how many
// may pass at once, or 0 if f must wait until Advance returns it; then due is when to call Advance.
func (q *Quota) Ask(f *Flow, have int, now time.Time) (pass int, due time.Time) {
	f.want = have
	for level, s := range f.link.stages {
		if s != nil {
			f.want = min(f.want, s.share(f.link.class[level]))
		}
	}
	if s := q.enter(f, 0, now); s != nil {
		return 0, s.nextRefill()
	}
	return f.want, time.Time{}
}

// enter takes f through the stages from the given level on, and returns the one where it must wait,
// or nil.
func (q *Quota) enter(f *Flow, level int, now time.Time) *stage {
	for ; level < stages; level++ {
		s := f.link.stages[level]
		if s == nil || s.rate == 0 {
			continue
		}
		s.refill(now)
		c := f.link.class[level]
		if len(s.line) == 0 && s.open() {
			s.join(c)
			s.serve(c, f.want)
			continue
		}
		s.push(f, c)
		f.level = level
		if !s.queued {
			s.queued = true
			q.lines = append(q.lines, s)
		}
		return s
	}
	f.level = stages
	return nil
}

// Advance returns the flows whose requests may pass at now, each for the number of bytes that Want
// returns, and when to call it again if there is no Ask before; the zero time is never. It appends
// to ready.
func (q *Quota) Advance(ready []*Flow, now time.Time) ([]*Flow, time.Time) {
	// A request that passes one stage may wait at another, which is then appended, or is in the
	// list already. A stage that was visited before has nothing more to grant at now.
	for i := 0; i < len(q.lines); i++ {
		s := q.lines[i]
		s.refill(now)
		for len(s.line) > 0 && s.open() {
			f := s.pop()
			if q.enter(f, f.level+1, now) == nil {
				ready = append(ready, f)
			}
		}
		if len(s.line) == 0 {
			s.queued = false
			q.lines[i] = nil
		}
	}
	var next time.Time
	waiting := q.lines[:0]
	for _, s := range q.lines {
		if s == nil {
			continue
		}
		waiting = append(waiting, s)
		if due := s.nextRefill(); next.IsZero() || due.Before(next) {
			next = due
		}
	}
	clear(q.lines[len(waiting):])
	q.lines = waiting
	return ready, next
}

// Want returns the number of bytes of f's last request.
func (f *Flow) Want() int { return f.want }

// Cancel drops f's request, and reports whether it was still waiting.
func (q *Quota) Cancel(f *Flow) bool {
	if f.level == stages {
		return false
	}
	f.link.stages[f.level].remove(f, f.link.class[f.level])
	f.back(f.level, f.want)
	f.level = stages
	return true
}

// Return returns n bytes that were granted and did not pass.
func (q *Quota) Return(f *Flow, n int) { f.back(stages, n) }

func (f *Flow) back(below, n int) {
	for level, s := range f.link.stages[:below] {
		if s != nil {
			s.giveBack(f.link.class[level], n)
		}
	}
}

// Count adds n bytes that a link moved to its owner's month. It reports whether that used the month
// up, so that the rates of live links changed.
func (q *Quota) Count(o Owner, n uint64, now time.Time) (changed bool) {
	u, p := q.userRate(o.user(), now), q.projectRate(o.Project, now)
	q.ledger.Add(o.user(), o.Project, n, now)
	q.fresh.Add(o.user(), o.Project, n, now)
	if after := q.userRate(o.user(), now); after != u {
		changed = true
		if s := q.users[o.user()]; s != nil {
			s.setRate(after, now)
		}
	}
	for _, a := range o.Allowances {
		changed = q.countAllowed(a, n, now) || changed
	}
	if after := q.projectRate(o.Project, now); o.Project != "" && after != p {
		changed = true
		if s := q.projects[o.Project]; s != nil {
			s.setRate(after, now)
		}
	}
	return changed
}

// Tidy drops users, projects and jobs that have no link and no debt. In a new month it lifts the
// restrictions from the old month's counts, and reports that. Call it periodically.
func (q *Quota) Tidy(now time.Time) (changed bool) {
	if q.ledger.StartMonth(now) {
		q.SetRules(q.rules, now)
		changed = true
	}
	tidy(q.users, now)
	tidy(q.projects, now)
	tidy(q.jobs, now)
	q.tidyAllowed(now)
	return changed
}

func tidy[K comparable](all map[K]*stage, now time.Time) {
	for name, s := range all {
		if s.idle(now) {
			delete(all, name)
		}
	}
}

// Fresh returns the counts since its last call, to be stored. The caller owns the result.
func (q *Quota) Fresh() *Ledger {
	f := q.fresh
	q.fresh = NewLedger()
	return f
}

// Stored passes q the stored counts, which include Fresh's and those of others that store in the
// same place, and in back counts that could not be stored; either may be nil. Rates follow.
func (q *Quota) Stored(all, back *Ledger, now time.Time) {
	if back != nil {
		q.fresh.Merge(back)
	}
	if all != nil {
		q.ledger = all
		q.ledger.StartMonth(now)
		q.ledger.Merge(q.fresh) // the counts since then
	}
	q.SetRules(q.rules, now)
}

// Use is the current usage of one user, project or job.
type Use struct {
	Links int    `json:"links"`
	Month uint64 `json:"bytes_month,omitempty"` // so far
	Rate  Rate   `json:"rate"`                  // that its links share; none is unlimited
}

// Uses is the usage of those with links: users, projects and jobs by name, and policies' allowances
// by overlay.Allowance.Key.
type Uses struct {
	Users    map[string]Use `json:"users,omitempty"`
	Projects map[string]Use `json:"projects,omitempty"`
	Jobs     map[string]Use `json:"jobs,omitempty"`
	Allowed  map[string]Use `json:"allowed,omitempty"`
}

// Uses returns the current usage. The caller owns the maps.
func (q *Quota) Uses(now time.Time) Uses {
	u := Uses{map[string]Use{}, map[string]Use{}, map[string]Use{}, map[string]Use{}}
	put := func(in map[string]Use, name string, s *stage, month uint64) {
		if s.links > 0 {
			in[name] = Use{s.links, month, Rate(s.rate * 8)}
		}
	}
	for name, s := range q.users {
		put(u.Users, name, s, q.ledger.User(name, now))
	}
	for name, s := range q.projects {
		put(u.Projects, name, s, q.ledger.Project(name, now))
	}
	for name, s := range q.jobs {
		put(u.Jobs, string(name), s, 0)
	}
	for key, a := range q.allowed {
		put(u.Allowed, key, &a.stage, q.ledger.Allowed(key, now))
	}
	return u
}
