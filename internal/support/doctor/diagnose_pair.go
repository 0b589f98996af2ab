package doctor

import (
	"fmt"
	"strings"

	"github.com/isthmus-grid/isthmus/overlay"
)

// pair judges the broker's plan for two sites.
func pair(p Pair) []Finding {
	target := p.A + " to " + p.B
	f := Finding{Layer: "pair", Target: target, Status: Passed, Class: OK}
	switch {
	case p.Err != "" && !p.Asked:
		f.Status, f.Evidence, f.Meaning = NotChecked, p.Err, "not checked: the broker could not be asked for its plan"
	case p.Err != "":
		f.Status, f.Class, f.Evidence = Failed, SiteAway, p.Err
		f.Meaning, f.Fix = "the broker gives no plan for the pair", "run isthmus doctor on the gateway of the site that the broker does not know"
	case len(p.Absent) > 0:
		f.Status, f.Class = Failed, SiteAway
		f.Evidence = fmt.Sprintf("the broker knows %s from before and has no session with its gateway", strings.Join(p.Absent, " and "))
		f.Meaning, f.Fix = "nothing can be arranged with that site now", "run isthmus doctor on its gateway"
	case p.Plan != nil && len(p.Plan.Steps) == 0:
		f.Status, f.Class = Failed, NoPath
		f.Evidence, f.Meaning = "the broker's plan has no technique: "+rejections(*p.Plan), "by their profiles the two sites cannot be joined"
		f.Fix = "change the rule that a reason names; a relay needs no more than TCP to port 443 out of both sites, and a proxy that both reach there"
	case p.Plan != nil:
		var names []string
		for _, s := range p.Plan.Steps {
			names = append(names, fmt.Sprintf("%v (%s)", s.Technique, s.Reason))
		}
		f.Evidence, f.Meaning = "the broker's plan: "+strings.Join(names, "; then "), "by their profiles the two sites can be joined"
	}
	if p.Store == "" {
		return []Finding{f}
	}
	return []Finding{f, {
		Layer: "store", Target: "the broker", Status: Warning, Class: StoreFault, Evidence: p.Store,
		Meaning: "enrolment with tokens and publishing of names fail; links and existing certificates keep working",
		Device:  "the broker's disk, or the etcd that it shares with others", Fix: "free space there, or bring a majority of the etcd's members up",
	}}
}

func rejections(p overlay.Plan) string {
	var texts []string
	for _, r := range p.Rejected {
		texts = append(texts, fmt.Sprintf("%v: %s", r.Technique, r.Reason))
	}
	return strings.Join(texts, "; ")
}
