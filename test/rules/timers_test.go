package rules

import (
	"go/ast"
	"go/token"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// farthest is what the four round trips of a path of 1.4 s and a second take. A wait for the far end of a path that a
// constant bounds to less is over before the answer is there: it belongs into package internal/rtt, or to the
// constants below, with the reason why it may be as short.
const farthest = 4*1400*time.Millisecond + time.Second

// timed are the folders whose code waits for other hosts.
var timed = []string{"broker", "connhelper", "frontal", "internal/carrier", "internal/control", "internal/limit/dialwindow",
	"internal/nat", "internal/pki/enrol", "internal/rtt", "link", "proxy"}

// Why a constant may be short.
const (
	least  = "the round trip is added, or counts if that takes longer"
	pause  = "it is between two things that are done, and nothing is given up after it"
	beside = "something else begins then, and nothing is given up"
	local  = "what is waited for is on this host or in its site"
	record = "it is about what is remembered, counted or written, and nothing waits for it"
	bye    = "it is for a last word, or an answer that may be lost: nothing fails without it"
	grows  = "it doubles with each try"
	twice  = "what follows from a longer silence needs a second one that agrees"
)

// shortTimers has the constants that are shorter, by folder and name.
var shortTimers = map[string]string{
	"broker callBackEvery":                   pause,
	"broker cutBound":                        local,
	"broker keepEvery":                       pause,
	"broker storeCall":                       local,
	"connhelper answerMargin":                local,
	"connhelper hostsWait":                   local,
	"connhelper longestPause":                pause,
	"connhelper moveEvery":                   pause,
	"connhelper minAwaitPause":               pause,
	"connhelper powerTime":                   local,
	"connhelper registerWait":                local,
	"connhelper rejoin":                      pause,
	"connhelper relayDoubt":                  beside,
	"connhelper reportPause":                 pause,
	"connhelper ticketTime":                  beside,
	"connhelper/race lastStart":              beside,
	"connhelper/race leadWait":               beside,
	"connhelper/race most":                   beside,
	"connhelper/race patience":               beside,
	"connhelper/race relayStart":             beside,
	"connhelper/race stagger":                beside,
	"connhelper/traffic passAfter":           record,
	"frontal trafficPeriod":                  pause,
	"frontal/directory hostsAgeEach":         record,
	"frontal/directory hostsPause":           pause,
	"frontal/directory lateAfter":            beside,
	"frontal/directory maxHostsAge":          record,
	"frontal/directory minAwaitPause":        pause,
	"frontal/directory minHostsAge":          record,
	"frontal/gateway localDial":              local,
	"frontal/outcomes minSilence":            record,
	"frontal/uplink AnswerMargin":            local,
	"frontal/uplink standardAnother":         beside,
	"internal/carrier AddressEvery":          pause,
	"internal/carrier nameFresh":             record,
	"internal/carrier newsWait":              local,
	"internal/carrier attemptDelay":          beside,
	"internal/carrier attemptTime":           grows,
	"internal/carrier drainBound":            bye,
	"internal/carrier lossEvery":             pause,
	"internal/carrier minLossRTT":            record,
	"internal/carrier pulse":                 pause,
	"internal/carrier queueSlack":            record,
	"internal/carrier urgentDelay":           beside,
	"internal/carrier/encap goodbyeTime":     bye,
	"internal/carrier/encap shareAnswer":     beside,
	"internal/carrier/encap shareFresh":      pause,
	"internal/carrier/encap stagger":         beside,
	"internal/carrier/encap unansweredAfter": beside,
	"internal/control AskBrokerIdle":         beside,
	"internal/control answerTime":            least,
	"internal/control claimTime":             least,
	"internal/control firstDoubt":            beside,
	"internal/control firstPause":            pause,
	"internal/control keepAlive":             pause,
	"internal/control lastDoubt":             beside,
	"internal/control lastTell":              bye,
	"internal/control longWord":              least,
	"internal/control longestPause":          pause,
	"internal/control onTime":                local,
	"internal/limit/dialwindow lateAfter":    beside,
	"internal/limit/dialwindow round":        pause,
	"internal/limit/dialwindow slotTime":     beside,
	"internal/nat/coordinate aging":          pause,
	"internal/nat/coordinate agreedTime":     least,
	"internal/nat/coordinate maxAhead":       record,
	"internal/nat/coordinate streamPatience": least,
	"internal/nat/coordinate webPortTimeout": local,
	"internal/nat/probe acceptPause":         pause,
	"internal/nat/probe arriveTime":          least,
	"internal/nat/probe crossWait":           least,
	"internal/nat/probe idleLate":            least,
	"internal/nat/probe rateLinger":          least,
	"internal/nat/probe rateQuiet":           least,
	"internal/nat/probe rateTime":            pause,
	"internal/nat/probe sizePause":           pause,
	"internal/nat/probe sizeWait":            least,
	"internal/nat/probe stunWait":            least,
	"internal/nat/probe viewTime":            least,
	"internal/nat/punch DefaultHoldOff":      beside,
	"internal/nat/punch arrivedLife":         record,
	"internal/nat/punch checkInterval":       pause,
	"internal/nat/punch linger":              bye,
	"internal/nat/punch markPatience":        bye,
	"internal/nat/punch nap":                 pause,
	"internal/nat/punch patienceForProgress": local,
	"internal/nat/punch stragglers":          beside,
	"internal/nat/reflector keepBound":       bye,
	"internal/nat/reflector tcpSilence":      twice,
	"internal/nat/reflector udpSilence":      bye,
	"internal/nat/simopen lead":              local,
	"internal/nat/traverse again":            pause,
	"internal/nat/traverse answerWait":       local,
	"internal/nat/traverse lingering":        bye,
	"internal/nat/traverse synWait":          local,
	"internal/pki/enrol insistWait":          pause,
	"internal/pki/enrol takeTimeout":         local,
	"internal/rtt farthest":                  least,
	"internal/rtt granularity":               least,
	"internal/rtt unmeasured":                least,
	"link absent":                            record,
	"link afterFall":                         pause,
	"link behindAfter":                       beside,
	"link doubtAfter":                        beside,
	"link duplicatePause":                    pause,
	"link failFor":                           least,
	"link farther":                           least,
	"link firstDial":                         least,
	"link firstLook":                         pause,
	"link firstPause":                        pause,
	"link heardWithin":                       record,
	"link hedgeAfter":                        beside,
	"link judgeFor":                          least,
	"link lastPause":                         pause,
	"link leastHandshake":                    least,
	"link leaving":                           bye,
	"link longRTT":                           record,
	"link lookBound":                         least,
	"link lossEvery":                         pause,
	"link maxBackoff":                        pause,
	"link minAsk":                            pause,
	"link minBackoff":                        pause,
	"link minRTT":                            record,
	"link oneDeath":                          record,
	"link oneDial":                           least,
	"link otherEnd":                          pause,
	"link patience":                          beside,
	"link queueFor":                          record,
	"link quietBefore":                       beside,
	"link rankEvery":                         pause,
	"link reserveAfter":                      pause,
	"link reserveAgain":                      pause,
	"link reserveOther":                      pause,
	"link reserveSpread":                     pause,
	"link sampleEvery":                       pause,
	"link shorter":                           record,
	"link slowFor":                           least,
	"link trialPause":                        pause,
	"link/sealed closeWait":                  bye,
	"link/sealed refusalTime":                bye,
	"link/stream Tick":                       pause,
	"link/stream askLoaded":                  beside,
	"link/stream closely":                    local,
	"link/stream doubtAfter":                 beside,
	"link/stream giveUp":                     least,
	"link/stream lateAfter":                  beside,
	"link/stream lingering":                  bye,
	"link/stream longHandshake":              record,
	"link/stream quickWrite":                 local,
	"link/stream shortIdle":                  record,
	"link/stream signOfLife":                 beside,
	"link/stream slowWrite":                  local,
	"proxy drainInterval":                    pause,
	"proxy drainQuiet":                       record,
	"proxy goodbyeTime":                      bye,
	"proxy offerEvery":                       pause,
	"proxy offerPause":                       pause,
}

// TestShortTimers: no constant is shorter than an answer may take, unless it is in the list.
func TestShortTimers(t *testing.T) {
	found := map[string]time.Duration{}
	for _, s := range sources(t) {
		if !slices.ContainsFunc(timed, func(in string) bool { return s.folder == in || strings.HasPrefix(s.folder, in+"/") }) {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok {
				for i, v := range spec.Values {
					if d, ok := durationOf(v); ok && d < farthest && d > 0 {
						found[s.folder+" "+spec.Names[min(i, len(spec.Names)-1)].Name] = d
					}
				}
			}
			return true
		})
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if shortTimers[name] == "" {
			t.Errorf("%s is %v, less than an answer takes on a path of 1.4 s (%v): take the time from internal/rtt, or list it with a reason", name, found[name], farthest)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(shortTimers)) {
		if found[name] == 0 {
			t.Errorf("%s is listed, and is not so short, or not there", name)
		}
	}
}

// durationOf returns the value of an expression that is a number of a unit of package time.
func durationOf(e ast.Expr) (time.Duration, bool) {
	switch e := e.(type) {
	case *ast.ParenExpr:
		return durationOf(e.X)
	case *ast.SelectorExpr:
		if p, ok := e.X.(*ast.Ident); !ok || p.Name != "time" {
			return 0, false
		}
		d, err := time.ParseDuration("1" + map[string]string{"Second": "s", "Millisecond": "ms", "Minute": "m", "Hour": "h", "Microsecond": "us"}[e.Sel.Name])
		return d, err == nil
	case *ast.BinaryExpr:
		if n, ok := e.X.(*ast.BasicLit); ok && e.Op == token.MUL && n.Kind == token.INT {
			v, err := strconv.Atoi(strings.ReplaceAll(n.Value, "_", ""))
			d, ok := durationOf(e.Y)
			return time.Duration(v) * d, ok && err == nil
		}
	}
	return 0, false
}
