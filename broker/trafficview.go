package broker

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/isthmus-grid/isthmus/internal/account/traffic"
	"github.com/isthmus-grid/isthmus/overlay"
)

// trafficView is the known traffic from one site to another.
type trafficView struct {
	Reported bool    // at least one daemon reported traffic
	Rate     float64 // bit/s
	Bytes    uint64
	Waits    uint64
	Held     string // "quota.per_job.rate 16Mbit/s at proxy p1": the current bottleneck; "" if there is none
	Direct   bool   // some links of the pair pass no daemon
}

// addTraffic fills in the traffic between the sites of each row.
func addTraffic(rows []pairRow, flows []traffic.Flow) {
	of := map[direction][]traffic.Flow{}
	for _, f := range flows {
		pair := direction{f.From, f.To}
		of[pair] = append(of[pair], f)
	}
	direct := map[direction]bool{}
	for i := range rows {
		r := &rows[i]
		r.Traffic = sumFlows(of[direction{r.Asker, r.Target}])
		if r.passesNobody() { // bytes go both ways, whichever end asked
			direct[direction{r.Asker, r.Target}], direct[direction{r.Target, r.Asker}] = true, true
		}
	}
	for i := range rows {
		rows[i].Traffic.Direct = direct[direction{rows[i].Asker, rows[i].Target}]
	}
}

// proxyPrefix begins the name of what carried a flow if that is a proxy.
const proxyPrefix = "proxy "

// sumFlows sums what daemons carried from one site to another. A link through a proxy and gateways
// is counted by each: the proxies together and the two gateways are three views of it, and the
// greatest of them misses the least.
func sumFlows(flows []traffic.Flow) trafficView {
	views := map[string]*trafficView{}
	var v trafficView
	for _, f := range flows {
		seen := f.By
		if strings.HasPrefix(f.By, proxyPrefix) {
			seen = "proxies"
		}
		if views[seen] == nil {
			views[seen] = new(trafficView)
		}
		views[seen].Rate += f.Rate
		views[seen].Bytes += f.Bytes
		v.Reported = true
		v.Waits += f.Waits
		if f.Held && v.Held == "" {
			v.Held = heldBy(f)
		}
	}
	for _, one := range views {
		v.Rate, v.Bytes = max(v.Rate, one.Rate), max(v.Bytes, one.Bytes)
	}
	return v
}

// heldBy says which limit holds a flow back, and where.
func heldBy(f traffic.Flow) string {
	return fmt.Sprintf("%s %v at %s", f.Rule, f.RuleRate, f.By)
}

// passesNobody reports whether links like the one that connected last pass neither a proxy nor a
// gateway.
func (p pairRow) passesNobody() bool {
	i := slices.IndexFunc(p.plan.Steps, func(s overlay.Step) bool { return s.Technique.String() == p.Now })
	return i >= 0 && p.plan.Steps[i].Technique != overlay.Relay && p.plan.Steps[i].Via == 0
}

// notCounted replaces a figure that would mislead.
const notCounted = "direct: not counted here"

// Text returns the rate and the bytes in words.
func (v trafficView) Text() string {
	switch {
	case !v.Reported && v.Direct:
		return notCounted
	case !v.Reported:
		return "-"
	}
	text := fmt.Sprintf("%s, %s", bitRate(v.Rate), byteSize(v.Bytes))
	if v.Direct {
		text += ", and " + notCounted
	}
	return text
}

// add returns the traffic of both directions.
func (v trafficView) add(other trafficView) trafficView {
	return trafficView{v.Reported || other.Reported, v.Rate + other.Rate, v.Bytes + other.Bytes, v.Waits + other.Waits, cmp.Or(v.Held, other.Held), v.Direct || other.Direct}
}

// short returns what the map shows of it.
func (v trafficView) short() (details []string) {
	if v.Rate > 0 || v.Held != "" {
		details = append(details, bitRate(v.Rate))
	}
	if v.Held != "" {
		details = append(details, "held back")
	}
	return details
}

// bitRate formats a measured rate.
func bitRate(bits float64) string { return scaled(bits, "bit/s") }

// byteSize formats a number of bytes.
func byteSize(n uint64) string { return scaled(float64(n), "B") }

// scaled writes three digits with a prefix for powers of 1000.
func scaled(x float64, unit string) string {
	prefixes := []string{"", "k", "M", "G", "T", "P", "E"}
	i := 0
	for ; x >= 999.5 && i < len(prefixes)-1; i++ {
		x /= 1000
	}
	if i == 0 || x >= 99.95 {
		return fmt.Sprintf("%.0f %s%s", x, prefixes[i], unit)
	}
	return fmt.Sprintf("%.3g %s%s", x, prefixes[i], unit)
}
