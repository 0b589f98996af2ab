package allocate

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// cluster is a row of Table 1 of the P2P-MPI co-allocation paper, with the round trip from nancy
// (section 5). Every host accepts as many processes of a job as it has cores.
type cluster struct {
	site, name  string
	rtt         time.Duration
	hosts, hasP int
}

var grid5000 = []cluster{
	{"nancy", "grelon", 100 * time.Microsecond, 60, 4},
	{"lyon", "capricorn", 10500 * time.Microsecond, 50, 2},
	{"rennes", "paravent", 11600 * time.Microsecond, 90, 2},
	{"bordeaux", "bordereau", 12600 * time.Microsecond, 60, 4},
	{"grenoble", "idpot", 13200 * time.Microsecond, 8, 2},
	{"grenoble", "idcalc", 13200 * time.Microsecond, 12, 4},
	{"sophia", "azur", 17100 * time.Microsecond, 32, 2},
	{"sophia", "sol", 17100 * time.Microsecond, 38, 4},
}

func grid5000Hosts() []Host {
	var hosts []Host
	for _, c := range grid5000 {
		for i := range c.hosts {
			node := overlay.NodeID{Site: overlay.SiteID(c.site), Name: fmt.Sprintf("%s-%d", c.name, i+1)}
			hosts = append(hosts, Host{Node: node, Latency: c.rtt, Processes: c.hasP, Jobs: 1})
		}
	}
	return hosts
}

func TestGrid5000HasTheHostsAndCoresOfThePaper(t *testing.T) {
	cores := 0
	for _, h := range grid5000Hosts() {
		cores += h.Processes
	}
	if n := len(grid5000Hosts()); n != 350 || cores != 1040 {
		t.Errorf("%d hosts, %d cores; the paper has 350 and 1040", n, cores)
	}
}

// The figures of section 5.1: hosts/processes at each site, in the order nancy, lyon,
// rennes, bordeaux, grenoble, sophia. They are what the paper's algorithms give with
// hosts ordered by the ICMP round trips that it lists; they agree with each sentence of
// section 5.1 that can be checked. Two things there do not: the plotted curves of
// concentrate interleave lyon, rennes and bordeaux from 300 processes on, which is the
// latency that was measured then, not the algorithm; and "the 60 hosts at nancy only, up
// to 200 processes" are 25 to 50 of them.
var grid5000Goldens = []struct {
	strategy string
	n, r     int
	sites    string
	hosts    int
}{
	{"concentrate", 100, 1, "25/100 - - - - -", 25},
	{"concentrate", 150, 1, "38/150 - - - - -", 38},
	{"concentrate", 200, 1, "50/200 - - - - -", 50},
	{"concentrate", 250, 1, "60/240 5/10 - - - -", 65},
	{"concentrate", 300, 1, "60/240 30/60 - - - -", 90},
	{"concentrate", 350, 1, "60/240 50/100 5/10 - - -", 115},
	{"concentrate", 400, 1, "60/240 50/100 30/60 - - -", 140},
	{"concentrate", 450, 1, "60/240 50/100 55/110 - - -", 165},
	{"concentrate", 500, 1, "60/240 50/100 80/160 - - -", 190},
	{"concentrate", 550, 1, "60/240 50/100 90/180 8/30 - -", 208},
	{"concentrate", 600, 1, "60/240 50/100 90/180 20/80 - -", 220},

	{"spread", 100, 1, "60/60 40/40 - - - -", 100},
	{"spread", 150, 1, "60/60 50/50 40/40 - - -", 150},
	{"spread", 200, 1, "60/60 50/50 90/90 - - -", 200},
	{"spread", 250, 1, "60/60 50/50 90/90 50/50 - -", 250},
	{"spread", 300, 1, "60/60 50/50 90/90 60/60 20/20 20/20", 300},
	{"spread", 350, 1, "60/60 50/50 90/90 60/60 20/20 70/70", 350},
	{"spread", 400, 1, "60/110 50/50 90/90 60/60 20/20 70/70", 350},
	{"spread", 450, 1, "60/120 50/90 90/90 60/60 20/20 70/70", 350},
	{"spread", 500, 1, "60/120 50/100 90/130 60/60 20/20 70/70", 350},
	{"spread", 550, 1, "60/120 50/100 90/180 60/60 20/20 70/70", 350},
	{"spread", 600, 1, "60/120 50/100 90/180 60/110 20/20 70/70", 350},

	// The sizes of the EP and IS runs.
	{"spread", 64, 1, "60/60 4/4 - - - -", 64},
	{"spread", 128, 1, "60/60 50/50 18/18 - - -", 128},
	{"spread", 256, 1, "60/60 50/50 90/90 56/56 - -", 256},
	{"spread", 512, 1, "60/120 50/100 90/142 60/60 20/20 70/70", 350},
	{"concentrate", 64, 1, "16/64 - - - - -", 16},
	{"concentrate", 128, 1, "32/128 - - - - -", 32},
	{"concentrate", 256, 1, "60/240 8/16 - - - -", 68},
	{"concentrate", 512, 1, "60/240 50/100 86/172 - - -", 196},

	{"concentrate", 100, 2, "50/200 - - - - -", 50},
	{"concentrate", 200, 2, "60/240 50/100 30/60 - - -", 140},
	{"concentrate", 300, 2, "60/240 50/100 90/180 20/80 - -", 220},
	{"spread", 100, 2, "60/60 50/50 90/90 - - -", 200},
	{"spread", 200, 2, "60/110 50/50 90/90 60/60 20/20 70/70", 350},

	// Every core in use.
	{"concentrate", 520, 2, "60/240 50/100 90/180 60/240 20/64 70/216", 350},
	{"spread", 520, 2, "60/240 50/100 90/180 60/240 20/64 70/216", 350},
}

func TestGrid5000Table(t *testing.T) {
	for _, g := range grid5000Goldens {
		t.Run(fmt.Sprintf("%s/n=%d/r=%d", g.strategy, g.n, g.r), func(t *testing.T) {
			p := allocate(t, Job{Ranks: g.n, Copies: g.r}, grid5000Hosts(), g.strategy)
			if got := bySite(p); got != g.sites {
				t.Errorf("hosts/processes by site:\n got %s\nwant %s", got, g.sites)
			}
			if got := len(p.Used()); got != g.hosts {
				t.Errorf("%d hosts, want %d", got, g.hosts)
			}
			checkPlan(t, p)
		})
	}
}

// Within a site of two clusters the order of Table 1 decides.
func TestGrid5000SpreadByCluster(t *testing.T) {
	for n, want := range map[int]string{300: "8 12 20 0", 350: "8 12 32 38", 600: "8 12 32 38"} {
		p := allocate(t, Job{Ranks: n, Copies: 1}, grid5000Hosts(), "spread")
		hosts := map[string]int{}
		for _, h := range p.Used() {
			name, _, _ := strings.Cut(h.Node.Name, "-")
			hosts[name]++
		}
		if got := fmt.Sprint(hosts["idpot"], hosts["idcalc"], hosts["azur"], hosts["sol"]); got != want {
			t.Errorf("n=%d: idpot, idcalc, azur, sol have %s hosts, want %s", n, got, want)
		}
	}
}

func TestGrid5000LastHostTakesTheRest(t *testing.T) {
	used := allocate(t, Job{Ranks: 550, Copies: 1}, grid5000Hosts(), "concentrate").Used()
	if last := used[len(used)-1]; last.Node.Site != "bordeaux" || len(last.Processes) != 2 {
		t.Errorf("the last host is %s with %d processes, want one of bordeaux with 2", last.Node, len(last.Processes))
	}
}

func TestGrid5000IsFullAt1040(t *testing.T) {
	for _, strategy := range Strategies {
		s, err := ByName(strategy, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Allocate(Job{Ranks: 1041, Copies: 1}, grid5000Hosts(), s)
		if want := "1041 processes (1041 ranks, 1 copies each) do not fit: 350 hosts take 1040; in the way: processes; would fit: 1040 ranks"; err == nil || err.Error() != want {
			t.Errorf("%s: error %v, want %s", strategy, err, want)
		}
	}
}

// The table that a dry run prints is read back and compared with the plan.
func TestTableSaysWhatThePlanSays(t *testing.T) {
	for _, g := range grid5000Goldens {
		p := allocate(t, Job{Ranks: g.n, Copies: g.r}, grid5000Hosts(), g.strategy)
		var b strings.Builder
		if err := p.WriteTable(&b); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(b.String()), "\n")
		lines = lines[1 : len(lines)-1] // the header and the sum
		if len(lines) != len(p.Used()) {
			t.Fatalf("%d lines for %d hosts", len(lines), len(p.Used()))
		}
		for i, h := range p.Used() {
			var name, site, ms, unit, ranks string
			var capacity, processes int
			if _, err := fmt.Sscan(lines[i], &name, &site, &ms, &unit, &capacity, &processes, &ranks); err != nil {
				t.Fatalf("line %q: %v", lines[i], err)
			}
			if name != h.Node.Name || site != string(h.Node.Site) || capacity != h.Capacity || processes != len(h.Processes) || ranks != ranksText(h.Processes) || unit != "ms" {
				t.Fatalf("line %q for %+v", lines[i], h)
			}
		}
	}
}

// allocate makes a plan by the name of its strategy.
func allocate(t testing.TB, job Job, hosts []Host, strategy string) *Plan {
	t.Helper()
	s, err := ByName(strategy, nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Allocate(job, hosts, s)
	if err != nil {
		t.Fatalf("%s of %+v: %v", strategy, job, err)
	}
	return p
}

// bySite writes hosts/processes of each site of the testbed.
func bySite(p *Plan) string {
	hosts, processes := map[overlay.SiteID]int{}, map[overlay.SiteID]int{}
	for _, h := range p.Used() {
		hosts[h.Node.Site]++
		processes[h.Node.Site] += len(h.Processes)
	}
	var cells []string
	for _, site := range []overlay.SiteID{"nancy", "lyon", "rennes", "bordeaux", "grenoble", "sophia"} {
		cell := "-"
		if hosts[site] > 0 {
			cell = fmt.Sprintf("%d/%d", hosts[site], processes[site])
		}
		cells = append(cells, cell)
	}
	return strings.Join(cells, " ")
}
