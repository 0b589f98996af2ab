package offer

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/overlay"
)

// ToPB converts an offer to its message.
func (o Offer) ToPB() *controlpb.HostOffer {
	return &controlpb.HostOffer{Jobs: uint32(o.Jobs), Processes: uint32(o.Processes), Memory: uint64(o.Memory), Cpu: uint32(o.CPU), Power: uint32(o.Power)}
}

// FromPB validates and converts an offer. Nil is the zero Offer.
func FromPB(m *controlpb.HostOffer) (Offer, error) {
	if m.GetMemory() > math.MaxInt64 {
		return Offer{}, fmt.Errorf("an offer of memory: %d; want 0 to %d", m.GetMemory(), int64(math.MaxInt64))
	}
	o := Offer{Jobs: int(m.GetJobs()), Processes: int(m.GetProcesses()), Memory: int64(m.GetMemory()), CPU: int(m.GetCpu()), Power: int(m.GetPower())}
	if err := o.Check(); err != nil {
		return Offer{}, err
	}
	return o, nil
}

var (
	statesToPB = map[State]controlpb.Host_State{
		Up: controlpb.Host_UP, Away: controlpb.Host_AWAY, Unknown: controlpb.Host_UNKNOWN,
	}
	statesFromPB = map[controlpb.Host_State]State{
		controlpb.Host_UP: Up, controlpb.Host_AWAY: Away, controlpb.Host_UNKNOWN: Unknown,
	}
)

// ListToPB converts a list of hosts to its message.
func ListToPB(hosts []Host) *controlpb.HostList {
	list := &controlpb.HostList{Hosts: make([]*controlpb.Host, len(hosts))}
	for i, h := range hosts {
		list.Hosts[i] = &controlpb.Host{
			Site: string(h.Node.Site), Node: h.Node.Name, State: statesToPB[h.State],
			SilentS: uint32(min(h.Silent/time.Second, math.MaxUint32)), Offer: h.Offer.ToPB(), Note: noteOf(h.Note),
		}
	}
	return list
}

// A List is what is known of the grid's hosts.
type List struct {
	Hosts []Host
	Stale string // why other sites' hosts are as they were before, or missing; empty: they are current
}

// ListFromPB validates and converts a list of hosts. It fails unless each node is named once, in
// the order of Compare.
func ListFromPB(m *controlpb.HostList) ([]Host, error) {
	if n := len(m.GetHosts()); n > MaxHosts {
		return nil, fmt.Errorf("a list of %d hosts; at most %d are taken", n, MaxHosts)
	}
	hosts := make([]Host, 0, len(m.GetHosts()))
	for _, pb := range m.GetHosts() {
		h, err := hostFromPB(pb)
		if err != nil {
			return nil, fmt.Errorf("host %q of site %q: %w", pb.GetNode(), pb.GetSite(), err)
		}
		if n := len(hosts); n > 0 && Compare(hosts[n-1], h) >= 0 {
			return nil, fmt.Errorf("a list of hosts names %v after %v", h.Node, hosts[n-1].Node)
		}
		hosts = append(hosts, h)
	}
	return slices.Clip(hosts), nil
}

func hostFromPB(m *controlpb.Host) (h Host, err error) {
	h.Node = overlay.NodeID{Site: overlay.SiteID(m.GetSite()), Name: m.GetNode()}
	if err := overlay.CheckName("site", m.GetSite()); err != nil {
		return h, err
	}
	if err := overlay.CheckName("node", m.GetNode()); err != nil {
		return h, err
	}
	var known bool
	if h.State, known = statesFromPB[m.GetState()]; !known {
		return h, fmt.Errorf("state %v is none", m.GetState())
	}
	if h.State != Up {
		h.Silent = time.Duration(m.GetSilentS()) * time.Second
	}
	h.Note = noteOf(m.GetNote())
	h.Offer, err = FromPB(m.GetOffer())
	return h, err
}
