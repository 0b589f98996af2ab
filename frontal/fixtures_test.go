package frontal

import (
	"fmt"
	"slices"
	"time"

	"github.com/isthmus-grid/isthmus/frontal/directory"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/launch/offer"
	"github.com/isthmus-grid/isthmus/overlay"
)

var (
	jobKey = func() jobkey.Key {
		k, err := jobkey.Parse("demo:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8")
		if err != nil {
			panic(err)
		}
		return k
	}()
	job = jobKey.ID()
)

func proc(rank uint32) overlay.ProcessName { return overlay.ProcessName{Job: job, Rank: rank} }

func pointAt(rank uint32, generation uint64, site, node string) *controlpb.AccessPoint {
	return &controlpb.AccessPoint{
		Process: control.ProcessToPB(proc(rank)), Generation: generation, Site: site, Node: node,
		Local: "10.2.0.9:4000", Public: "203.0.113.7:443",
	}
}

func planTo(site, reason string) *controlpb.Plan {
	return control.PlanToPB(overlay.Plan{Asker: "sitea", Target: overlay.SiteID(site), Steps: []overlay.Step{{Technique: overlay.Direct, Reason: reason}}})
}

func answerFor(rank uint32, generation uint64, site string) directory.Answer {
	return directory.Answer{Name: proc(rank), Point: pointAt(rank, generation, site, "b1"), Plan: planTo(site, "open")}
}

func hostOf(site overlay.SiteID, node string, state offer.State, silent time.Duration) offer.Host {
	return offer.Host{Node: overlay.NodeID{Site: site, Name: node}, State: state, Silent: silent, Offer: offer.Offer{Jobs: 1, Processes: 4}}
}

func ranks(points []overlay.AccessPoint) string {
	var all []uint32
	for _, p := range points {
		all = append(all, p.Process.Rank)
	}
	slices.Sort(all)
	return fmt.Sprint(all)
}
