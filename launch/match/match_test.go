package match

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/testload"
	"github.com/isthmus-grid/isthmus/launch/profile"
	"github.com/isthmus-grid/isthmus/overlay"
)

// The search finds a match exactly when trying everything does.
func TestAgreesWithBruteForce(t *testing.T) {
	cases := 150
	if testload.Full() {
		cases = 1000
	}
	matches, worst := 0, 0
	for seed := range uint64(cases) {
		p, o := random(rand.New(rand.NewPCG(seed, 1)))
		if err := p.Check(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		want := brute(p, o)
		pr := newProblem(p, o.surveyed(), DefaultEffort)
		got, v := pr.solve()
		worst = max(worst, pr.steps)
		switch {
		case v == gaveUp:
			t.Fatalf("seed %d: gave up", seed)
		case (v == found) != (want != nil):
			t.Fatalf("seed %d: found %v; trying everything finds %v\n%+v\n%+v", seed, got, want, p, o)
		case v == found:
			matches++
			if bad := holds(p, o, got); bad != "" {
				t.Fatalf("seed %d: %v: %s\n%+v\n%+v", seed, got, bad, p, o)
			}
		}
	}
	t.Logf("%d of %d match; at most %d steps", matches, cases, worst)
	if matches < cases/5 || matches > cases*4/5 {
		t.Errorf("%d of %d match: the cases are too easy to tell", matches, cases)
	}
}

// What an Infeasible offers can be met, and one step more cannot.
func TestNearestOffers(t *testing.T) {
	seeds, said := uint64(40), 0
	if testload.Full() {
		seeds = 300
	}
	for seed := range seeds {
		p, o := random(rand.New(rand.NewPCG(seed, 2)))
		if len(p.Groups) > 3 || brute(p, o) != nil {
			continue
		}
		why := explain(p, o, DefaultEffort)
		if why.Unsure || len(why.Either)+len(why.All) == 0 {
			t.Fatalf("seed %d: %+v", seed, why)
		}
		e := &explainer{o: o, effort: 1 << 30, each: DefaultEffort}
		for _, d := range demands(p, o) {
			said++
			q := copied(p)
			d.set(q, 0)
			s := e.shortfall(p, d)
			if possible := brute(q, o) != nil; !possible || s == nil {
				if possible && !d.counts || s != nil {
					t.Fatalf("seed %d: %s: with none of it possible %t, said %v", seed, d.what, possible, s)
				}
				continue
			}
			_, offer := e.nearest(q, d)
			if brute(q, o) == nil {
				t.Fatalf("seed %d: %v cannot be met", seed, s)
			}
			if d.set(q, offer+1); brute(q, o) != nil {
				t.Fatalf("seed %d: %v: %s can be met too", seed, s, d.text(offer+1))
			}
		}
	}
	t.Logf("%d demands looked at", said)
}

// All is sufficient: a profile with all of it as offered matches.
func TestTogether(t *testing.T) {
	looked := 0
	for seed := range uint64(300) {
		p, o := random(rand.New(rand.NewPCG(seed, 3)))
		if len(p.Groups) > 3 || brute(p, o) != nil {
			continue
		}
		e := &explainer{o: o, effort: 1 << 30, each: DefaultEffort}
		q := copied(p)
		list := demands(p, o)
		for _, d := range list {
			d.set(q, 0)
		}
		for _, d := range list {
			if d.set(q, d.offers); brute(q, o) == nil {
				s, offer := e.nearest(q, d)
				looked++
				if brute(q, o) == nil {
					t.Fatalf("seed %d: %v at %d cannot be met", seed, s, offer)
				}
			}
		}
		if all := e.raiseInTurn(p, list); len(all) == 0 {
			t.Fatalf("seed %d: nothing has to give", seed)
		}
	}
	t.Logf("%d shortfalls looked at", looked)
}

// grid5000 is the six sites of the P2P-MPI paper (Table 1): hosts, cores each.
func grid5000(t testing.TB) *Offer {
	var hosts []Host
	for _, c := range []struct {
		site, cluster string
		hosts, cores  int
		speed         profile.Frequency
	}{
		{"nancy", "grelon", 60, 4, 1600e6}, {"lyon", "capricorn", 50, 2, 2000e6}, {"rennes", "paravent", 90, 2, 2000e6},
		{"bordeaux", "bordereau", 60, 4, 2600e6}, {"grenoble", "idpot", 8, 2, 2400e6}, {"grenoble", "idcalc", 12, 4, 1500e6},
		{"sophia", "azur", 32, 2, 2000e6}, {"sophia", "sol", 38, 4, 2600e6},
	} {
		for i := range c.hosts {
			hosts = append(hosts, Host{
				Node:      overlay.NodeID{Site: overlay.SiteID(c.site), Name: fmt.Sprintf("%s-%02d", c.cluster, i)},
				Processes: c.cores, Cores: c.cores, Speed: c.speed, Memory: 2 << 30,
			})
		}
	}
	o, err := NewOffer(hosts)
	if err != nil {
		t.Fatal(err)
	}
	sites := []overlay.SiteID{"nancy", "lyon", "rennes", "bordeaux", "grenoble", "sophia"}
	rtt := []time.Duration{100, 10500, 11600, 12600, 13200, 17100} // from nancy, in us
	for i, a := range sites {
		o.Sites(a, a, Link{RTT: 100 * time.Microsecond, Bandwidth: 894e6})
		for j, b := range sites[:i] {
			l := Link{RTT: rtt[i] * time.Microsecond, Bandwidth: 136e6}
			if j > 0 {
				l.RTT = (rtt[i] + rtt[j]) * time.Microsecond / 2
			}
			o.Sites(b, a, l)
		}
	}
	return o
}

func read(t testing.TB, text string) *profile.Profile {
	t.Helper()
	p, err := profile.Read("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

const tsqr = `
groups:
- {name: a, processes: 100, inside: {latency: 1ms}}
- {name: b, processes: 100, inside: {latency: 1ms}}
- {name: c, processes: 100, inside: {latency: 1ms}}
- {name: d, processes: 100, inside: {latency: 1ms}}
between:
- {groups: [a, b], latency: 12ms}
- {groups: [c, d], latency: 16ms}
similar:
- {groups: [a, b, c, d], power: 40%}
`

func TestGrid(t *testing.T) {
	o := grid5000(t)
	p := read(t, tsqr)
	m, err := Find(p, o, 0)
	if err != nil {
		t.Fatal(err)
	}
	rank := 0
	counts := make([][]int, len(p.Groups))
	index := map[overlay.NodeID]int{}
	for h := range o.hosts {
		index[o.hosts[h].Node] = h
	}
	for g, group := range m.Groups {
		counts[g] = make([]int, len(o.hosts))
		if group.Name != p.Groups[g].Name || group.First != rank || group.Count != p.Groups[g].Processes {
			t.Errorf("group %+v", group)
		}
		for _, s := range group.Hosts {
			if s.First != rank {
				t.Errorf("%s: %+v does not begin at rank %d", group.Name, s, rank)
			}
			rank += s.Count
			counts[g][index[s.Node]] = s.Count
		}
	}
	if bad := holds(p, o, counts); bad != "" {
		t.Error(bad)
	}
	if got := m.Layout().String(); got != "a:100,b:100,c:100,d:100" {
		t.Error(got)
	}
	var b strings.Builder
	if err := m.WriteTable(&b); err != nil || strings.Count(b.String(), "\n") < 100 {
		t.Errorf("%v\n%s", err, b.String())
	}
	t.Logf("%d steps", m.Steps)
}

func TestInfeasible(t *testing.T) {
	o := grid5000(t)
	for name, c := range map[string]struct{ profile, want string }{
		"one site is too small": {
			"groups:\n- {name: a, processes: 241}\n",
			`match: no hosts meet the profile; one of these has to give, all else as asked:
  "a": processes: asks for 241; the best is 240 (a at bordeaux)
  "a": sites: asks for at most 1; the best is 2 (a at bordeaux and nancy)`,
		},
		"the whole grid is too small": {
			"groups:\n- {name: a, processes: 600, sites: any}\n- {name: b, processes: 441, sites: any}\n",
			`match: no hosts meet the profile; one of these has to give, all else as asked:
  "a": processes: asks for 600; the best is 599 (a at bordeaux and nancy and sophia)
  "b": processes: asks for 441; the best is 440 (b at bordeaux and grenoble and lyon and rennes)`,
		},
		"a pair is too far apart": {
			"groups:\n- {name: b, processes: 200}\n- {name: c, processes: 200}\nbetween:\n- {groups: [b, c], latency: 5ms}\n",
			`match: no hosts meet the profile; one of these has to give, all else as asked:
  "b": processes: asks for 200; the best is 40 (b at bordeaux)
  "c": processes: asks for 200; the best is 40 (c at bordeaux)
  "b" to "c": latency: asks for at most 5ms; the best is 12.6ms (b at bordeaux, c at nancy)`,
		},
		"fast hosts are few": {
			"groups:\n- {name: a, processes: 10, cores: 2, speed: 2.5GHz, memory: 2GiB, inside: {bandwidth: 1Gbit/s}}\n",
			`match: no hosts meet the profile; one of these has to give, all else as asked:
  "a": processes: asks for 10 of 2 cores, 2500MHz, 2GiB; the best is 1 (a at bordeaux)
  inside "a": bandwidth: asks for at least 1Gbit/s; the best is 894Mbit/s (a at sophia)`,
		},
		"too much memory and too fast": {
			"groups:\n- {name: a, processes: 2, speed: 3GHz, memory: 3GiB}\n",
			`match: no hosts meet the profile; these have to give together:
  "a": memory: asks for 3GiB for each process; the best is 2GiB (a at grenoble)
  "a": speed: asks for at least 3GHz; the best is 2600MHz (a at sophia)`,
		},
		"equal power": {
			"groups:\n- {name: a, processes: 240}\n- {name: b, processes: 240}\nsimilar:\n- {groups: [a, b], power: 10%}\n",
			`match: no hosts meet the profile; one of these has to give, all else as asked:
  "a": sites: asks for at most 1; the best is 2 (a at nancy and sophia)
  "b": sites: asks for at most 1; the best is 2 (b at nancy and sophia)
  "a", "b": power: asks for at most 10% apart; the best is 39% apart (a at bordeaux, b at nancy)`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Find(read(t, c.profile), o, 0)
			if !errors.As(err, new(*Infeasible)) || err.Error() != c.want {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

// A search that was too short reports that, and neither a match nor its absence.
func TestGivesUp(t *testing.T) {
	hosts := make([]Host, 12)
	for h := range hosts {
		hosts[h] = Host{Node: overlay.NodeID{Site: "s", Name: fmt.Sprint("h", h)}, Processes: 64, Cores: 60, Memory: 100}
	}
	o, err := NewOffer(hosts)
	if err != nil {
		t.Fatal(err)
	}
	o.Sites("s", "s", Link{RTT: 1, Bandwidth: 1})
	p := &profile.Profile{}
	// More than two of a host's 12 would need less than a third of its memory each.
	for g, memory := range []profile.Bytes{30, 35, 36, 37, 38, 39} {
		p.Groups = append(p.Groups, profile.Group{Name: fmt.Sprint("g", g), Processes: 5, Cores: 1, Memory: memory})
	}
	if _, err := Find(p, o, 1000); !errors.Is(err, ErrGaveUp) || !strings.Contains(err.Error(), "1000 steps") {
		t.Errorf("%v", err)
	}
}

// Measurements differ a little between any two hosts; that must not slow down the search.
func TestNoisyHosts(t *testing.T) {
	o := grid5000(t)
	rng := rand.New(rand.NewPCG(1, 1))
	for _, a := range o.hosts {
		for _, b := range o.hosts {
			if l := o.sites[[2]overlay.SiteID{a.Node.Site, b.Node.Site}]; a.Node != b.Node && l.RTT > 0 {
				l.RTT += time.Duration(rng.IntN(int(l.RTT / 20)))
				o.Hosts(a.Node, b.Node, l)
			}
		}
	}
	p := read(t, tsqr)
	p.Between[0].Latency = 14 * time.Millisecond
	p.Similar = nil
	m, err := Find(p, o, 2000)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d steps", m.Steps)
}

func TestOfferRefused(t *testing.T) {
	n := overlay.NodeID{Site: "s", Name: "n"}
	for _, hosts := range [][]Host{{{Node: n}, {Node: n}}, {{Node: n, Cores: -1}}, make([]Host, MaxHosts+1)} {
		if _, err := NewOffer(hosts); err == nil {
			t.Errorf("%d hosts taken", len(hosts))
		}
	}
	o, _ := NewOffer(nil)
	if _, err := Find(&profile.Profile{}, o, 0); err == nil || !errors.As(err, new(profile.Faults)) {
		t.Errorf("an empty profile: %v", err)
	}
}

func BenchmarkFind(b *testing.B) {
	o, p := grid5000(b), read(b, tsqr)
	for b.Loop() {
		if _, err := Find(p, o, 0); err != nil {
			b.Fatal(err)
		}
	}
}
