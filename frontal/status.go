package frontal

import (
	"context"
	"encoding/json"
	"time"

	"github.com/isthmus-grid/isthmus/frontal/directory"
	"github.com/isthmus-grid/isthmus/frontal/gateway"
	"github.com/isthmus-grid/isthmus/frontal/outcomes"
	"github.com/isthmus-grid/isthmus/frontal/permit"
	"github.com/isthmus-grid/isthmus/frontal/uplink"
	"github.com/isthmus-grid/isthmus/internal/account/audit"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/limit/ratelimit"
	"github.com/isthmus-grid/isthmus/internal/nat/probe"
	"github.com/isthmus-grid/isthmus/launch/offer"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Status is the answer of Admin.Status, as JSON.
type Status struct {
	Site       overlay.SiteID            `json:"site"`
	Profile    overlay.SiteProfile       `json:"profile"`
	Measured   *probe.Measured           `json:"measured,omitempty"` // what the probes found
	Differs    []probe.Difference        `json:"differs,omitempty"`  // where that is not what the profile says
	Epoch      uint64                    `json:"epoch"`              // of this start of the frontal
	Started    time.Time                 `json:"started"`
	Data       string                    `json:"data,omitempty"`   // address for the site's own nodes
	Public     string                    `json:"public,omitempty"` // address for other sites
	Policy     *permit.Status            `json:"policy,omitempty"` // absent: no link with another site is permitted
	Broker     uplink.Status             `json:"broker"`           // the one that is asked, or else the first
	Brokers    []uplink.Status           `json:"brokers"`          // all, in the order of the settings
	Helpers    []HelperStatus            `json:"helpers"`          // by node
	Jobs       map[overlay.JobID]int     `json:"jobs"`             // processes of this site
	Resolve    directory.ResolveCounters `json:"resolve"`
	Links      gateway.LinkCounters      `json:"links"`
	Audit      *audit.Status             `json:"audit,omitempty"` // of the audit log, if one is kept
	Quota      ratelimit.Status          `json:"quota"`           // usage by owner, and who waits
	Traversals gateway.TraversalCounters `json:"traversals"`      // of this gateway for nodes with no route out
	Memory     []outcomes.SiteStatus     `json:"memory"`          // how techniques did towards other sites
	Waiting    map[string]int            `json:"waiting"`         // what holds a place under limits
}

// HelperStatus is one node's helper.
type HelperStatus struct {
	Node      string    `json:"node"`
	Up        bool      `json:"up"`
	Since     time.Time `json:"since"` // of the session or of its absence
	Address   string    `json:"address,omitempty"`
	Processes int       `json:"processes"`

	Offer *offer.Offer `json:"offer,omitempty"` // what the node's owner offers; absent if the helper did not say

	Contested string `json:"contested,omitempty"` // says that two hosts present the helper's certificate
}

// adminServer serves holders of an admin certificate.
type adminServer struct {
	controlpb.UnimplementedAdminServer
	f *Frontal
}

// Status returns the frontal's Status as JSON.
func (a *adminServer) Status(ctx context.Context, _ *controlpb.StatusRequest) (*controlpb.StatusResponse, error) {
	if id := control.SessionOf(ctx).Peer(); id.Role != control.RoleAdmin {
		return nil, control.Status(a.f.forbidden("%v may not call Status; an admin may", id))
	}
	text, err := json.Marshal(a.f.status())
	if err != nil {
		return nil, control.Status(err)
	}
	return &controlpb.StatusResponse{Json: text}, nil
}

func (f *Frontal) status() Status {
	g := f.gateway.Status()
	s := Status{
		Site: f.site, Profile: f.profile(), Epoch: f.epoch, Started: f.start,
		Data: addrText(f.gateway.DataAddr), Public: addrText(f.gateway.PublicAddr),
		Policy: f.permit.Status(), Brokers: f.up.Status(), Jobs: f.registry.Jobs(), Helpers: []HelperStatus{},
		Resolve: f.resolver.Counters(), Memory: f.memory.Status(time.Now()),
		Links: g.Links, Traversals: g.Traversals, Quota: g.Quota, Waiting: g.Waiting, Audit: f.audit.Status(),
	}
	s.Broker = s.Brokers[0]
	for _, b := range s.Brokers {
		if b.Asked {
			s.Broker = b
		}
	}
	for _, h := range f.registry.Helpers() {
		hs := HelperStatus{Node: h.Node, Up: h.Session != nil, Since: h.Since, Processes: h.Processes, Offer: f.hosts.Offer(h.Node), Contested: f.hosts.Note(h.Node)}
		if h.Session != nil {
			hs.Address = h.Session.RemoteAddr().String()
		}
		s.Helpers = append(s.Helpers, hs)
	}
	if m := f.measure.Measured(); m != nil {
		s.Measured, s.Differs = m, m.Differences(s.Profile)
	}
	return s
}
