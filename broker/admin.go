package broker

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/isthmus-grid/isthmus/broker/decide"
	"github.com/isthmus-grid/isthmus/broker/registry"
	"github.com/isthmus-grid/isthmus/internal/account/audit"
	"github.com/isthmus-grid/isthmus/internal/account/traffic"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/nat/probe"
	"github.com/isthmus-grid/isthmus/internal/store"
	"github.com/isthmus-grid/isthmus/launch/offer"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Status is the broker's state as the admin service returns it, in JSON.
type Status struct {
	Broker    string             `json:"broker"`
	Epoch     uint64             `json:"epoch"`
	Started   time.Time          `json:"started"`
	Sessions  int                `json:"sessions"` // open now
	Waiting   int                `json:"waiting"`  // callers waiting for a process or a name
	Names     int                `json:"names"`    // published
	Sites     []SiteStatus       `json:"sites"`
	Jobs      []JobStatus        `json:"jobs"`
	Proxies   []ProxyStatus      `json:"proxies"`
	Kinds     []decide.ProxyKind `json:"proxy_kinds"` // by which plans have relays; null: not known yet
	Outcomes  []OutcomeStatus    `json:"outcomes"`    // of techniques between sites, as frontals report them
	Traffic   []traffic.Flow     `json:"traffic"`     // bytes between sites that passed proxies and gateways, by carrier
	Reflector ReflectorStatus    `json:"reflector"`   // the broker's activity as a reflector
	Counters  CounterStatus      `json:"counters"`
	Audit     *audit.Status      `json:"audit,omitempty"` // of the audit log, if one is kept
	Store     *store.Status      `json:"store,omitempty"` // where durable state is kept, if anywhere
}

// SiteStatus is one site. Since is when its frontal joined or, if the frontal is away, when it
// left.
type SiteStatus struct {
	Profile   overlay.SiteProfile `json:"profile"`
	Connected bool                `json:"connected"`
	Since     time.Time           `json:"since"`
	Processes int                 `json:"processes"`
	Hosts     offer.Counts        `json:"hosts"`             // nodes in the list of hosts
	Policy    *PolicyStatus       `json:"policy,omitempty"`  // absent: the site has no policy and permits no link with others
	RTTMS     float64             `json:"rtt_ms,omitempty"`  // of the frontal's session with the broker
	Brokers   []BrokerSession     `json:"brokers,omitempty"` // the frontal's sessions with all brokers, as it reports them

	// Measured is what the site's probes found, if they ran; Differs lists where that contradicts
	// the profile.
	Measured *probe.Measured    `json:"measured,omitempty"`
	Differs  []probe.Difference `json:"differs,omitempty"`

	Contested string `json:"contested,omitempty"` // says that two hosts present the frontal's certificate
}

// JobStatus is one job.
type JobStatus struct {
	Job       overlay.JobID           `json:"job"`
	Processes map[overlay.SiteID]int  `json:"processes"`
	For       []registry.JobPrincipal `json:"for"` // principals on whose behalf it runs
}

// ProxyStatus is one proxy. Live includes the links assigned since the proxy's last report.
type ProxyStatus struct {
	Name      string   `json:"name"`
	Addresses []string `json:"addresses"`
	Live      int      `json:"live"`
	Capacity  int      `json:"capacity"`
	Draining  bool     `json:"draining"`
	Assigned  uint64   `json:"assigned"`
	Contested string   `json:"contested,omitempty"` // says that two hosts present the proxy's certificate
}

// Status returns the broker's state.
func (b *Broker) Status() Status {
	inv := b.registry.Inventory()
	now := time.Now()
	s := Status{
		Audit: b.audit.Status(), Store: b.store.status(),
		Broker: b.name, Epoch: b.epoch, Started: b.started, Sessions: b.sessions.count(), Waiting: inv.Waiting, Names: b.names.count(inv.Names),
		Sites: []SiteStatus{}, Jobs: []JobStatus{}, Proxies: []ProxyStatus{}, Kinds: b.proxyKinds(now), Outcomes: b.outcomes.status(), Traffic: b.traffic.Flows(now), Reflector: b.reflectorStatus(), Counters: b.counters.status(b.sessions.begun()),
	}
	for _, site := range inv.Sites {
		one := SiteStatus{Profile: site.Profile, Connected: site.Holder != 0, Since: site.Since, Processes: site.Processes, Policy: b.policies.status(site.Profile.Site), Hosts: offer.Count(b.hosts.bySite(site.Profile.Site, now)), Brokers: b.hosts.brokers(site.Profile.Site), Contested: b.contested(site.Profile.Site)}
		if session := b.sessions.byHolder(site.Holder); session != nil {
			one.RTTMS = float64(session.RTT().Microseconds()) / 1000
		}
		if one.Measured = b.measured.get(site.Profile.Site); one.Measured != nil {
			one.Differs = one.Measured.Differences(site.Profile)
		}
		s.Sites = append(s.Sites, one)
	}
	for _, job := range inv.Jobs {
		s.Jobs = append(s.Jobs, JobStatus(job))
	}
	for _, p := range b.proxies.Inventory() {
		var addresses []string
		for _, a := range p.Addresses {
			addresses = append(addresses, a.String())
		}
		s.Proxies = append(s.Proxies, ProxyStatus{p.Name, addresses, p.Live, p.Capacity, p.Draining, p.Assigned, b.endpoint.Contested(control.Identity{Role: control.RoleProxy, Name: p.Name})})
	}
	return s
}

// admin implements the admin service.
type admin struct {
	controlpb.UnimplementedAdminServer
	b *Broker
}

// Status implements controlpb.AdminServer.
func (a admin) Status(ctx context.Context, _ *controlpb.StatusRequest) (*controlpb.StatusResponse, error) {
	if _, _, err := a.b.caller(ctx, control.RoleAdmin); err != nil {
		return nil, a.b.fail(err)
	}
	text, err := json.Marshal(a.b.Status())
	if err != nil {
		return nil, a.b.fail(fmt.Errorf("broker status: %w", err))
	}
	return &controlpb.StatusResponse{Json: text}, nil
}

// Decide implements controlpb.AdminServer.
func (a admin) Decide(ctx context.Context, req *controlpb.DecideRequest) (*controlpb.Plan, error) {
	if _, _, err := a.b.caller(ctx, control.RoleAdmin); err != nil {
		return nil, a.b.fail(err)
	}
	asker, err := a.b.registry.Site(overlay.SiteID(req.GetAsker()))
	if err != nil {
		return nil, a.b.fail(err)
	}
	target, err := a.b.registry.Site(overlay.SiteID(req.GetTarget()))
	if err != nil {
		return nil, a.b.fail(err)
	}
	if len(req.GetWho()) == 0 && req.GetJob() == "" {
		return a.b.plans.decide(a.b.log, asker, target, a.b.proxyKinds(time.Now()), nil).msg, nil
	}
	plan, err := a.within(asker, target, req)
	if err != nil {
		return nil, a.b.fail(malformed(err))
	}
	return plan, nil
}

// maxWho bounds the principals of one query; a link has two.
const maxWho = 16

// within returns the plan for links of a job under both sites' policies, and the policies' verdict.
// It counts nothing, because no link is requested.
func (a admin) within(asker, target *registry.Site, req *controlpb.DecideRequest) (*controlpb.Plan, error) {
	if len(req.Who) > maxWho {
		return nil, fmt.Errorf("%d principals, at most %d can be asked about", len(req.Who), maxWho)
	}
	var who []overlay.Principal
	for _, m := range req.Who {
		p, err := control.PrincipalFromPB(m)
		if err != nil {
			return nil, err
		}
		who = append(who, p)
	}
	if err := overlay.CheckName("job", req.GetJob()); err != nil {
		return nil, err
	}
	at := time.Now()
	if req.GetAt() != 0 {
		at = time.Unix(req.GetAt(), 0)
	}
	from, to := asker.Profile.Site, target.Profile.Site
	p, q := a.b.policies.pair(from, to)
	g := agree(from, p, to, q, req.Job, who, at)
	msg := control.PlanToPB(decide.Within(asker.Profile, target.Profile, a.b.proxyKinds(time.Now()), g))
	text, err := json.Marshal(g.Explain())
	if err != nil {
		return nil, err
	}
	msg.Policy = text
	return msg, nil
}
