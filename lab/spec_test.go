package lab

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/lab/wan"
)

const goodSpec = `# two sites and the outside
window: 128KiB
wan:
  rtt: 10ms
  jitter: 100us
  loss: 0.1%
  rate: 1Gbit
  queue: 2MB
  pairs:
    - {between: [alpha, beta], rtt: 40ms, rate: 100Mbit}
    - from: beta
      to: pub/broker
      delay: 7ms
      loss: 0
      duplicate: 0.25
sites:
  - name: alpha
    preset: http-proxy
    nodes: 2
    cpu: 0.5
    uplink: 500 Mbit
    burst: 16KiB
  - {name: beta, preset: no-route/egress-443, nodes: [login, c1], gateway: edge}
  - {name: pub, preset: public, nodes: [broker, relay]}
`

func TestParse(t *testing.T) {
	s, err := Parse("good.yaml", []byte(goodSpec))
	if err != nil {
		t.Fatal(err)
	}
	if s.Window != 128<<10 {
		t.Errorf("window %d", s.Window)
	}
	if got := s.Sites[0]; got.Uplink != 500e6 || got.Burst != 16<<10 || got.cores(0) != .5 || got.cores(1) != .5 || s.Sites[1].cores(0) != 0 || !slices.Equal(got.Nodes, []string{"n1", "n2"}) || got.gateway() != "gw" {
		t.Errorf("alpha: %+v", got)
	}
	if got := s.Sites[1].gateway(); got != "edge" {
		t.Errorf("beta's gateway: %q", got)
	}
	def := wan.Shape{Delay: 5 * time.Millisecond, Jitter: 100 * time.Microsecond, Loss: 0.001, Rate: 1e9, Queue: 2e6}
	far := def
	far.Delay, far.Rate = 20*time.Millisecond, 100e6
	special := def
	special.Delay, special.Loss, special.Duplicate = 7*time.Millisecond, 0, 0.25
	paths := s.paths()
	for pair, want := range map[[2]string]wan.Shape{
		{"alpha", "pub/relay"}:       def,
		{"alpha/proxy", "pub/relay"}: def,
		{"alpha", "alpha/proxy"}:     {},
		{"alpha/proxy", "alpha"}:     {},
		{"alpha", "beta"}:            far,
		{"beta", "alpha"}:            far,
		{"beta", "alpha/proxy"}:      far,
		{"beta", "pub/broker"}:       special,
		{"pub/broker", "beta"}:       def,
		{"beta", "pub/relay"}:        def,
		{"pub/relay", "pub/broker"}:  def,
	} {
		if got := paths[pair]; got != want {
			t.Errorf("%v: %+v, want %+v", pair, got, want)
		}
	}
	if want := 5 * 4; len(paths) != want {
		t.Errorf("%d paths among 5 places, want %d", len(paths), want)
	}
}

func TestParseErrors(t *testing.T) {
	column := regexp.MustCompile(`^(x.yaml:\d+):\d+`)
	const one = "sites: [{name: a, preset: open}]\n"
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "x.yaml: sites: no site; give at least one"},
		{"not YAML", "sites: [", "x.yaml: line 1: did not find"},
		{"a list", "- a", "x.yaml:1: a list where keys belong"},
		{"no sites", "wan: {rtt: 1ms}", "x.yaml: sites: no site; give at least one"},
		{"unknown key", "sites:\n- name: a\n  presset: open\n", "x.yaml:3: sites[0].presset: unknown key; did you mean preset?"},
		{"cpu", "sites:\n- name: a\n  preset: open\n  cpu: [1, many]\n", `x.yaml:4: sites[0].cpu[1]: the text "many" where a number belongs`},
		{"cpu of more nodes", "sites:\n- name: a\n  preset: open\n  cpu: [1, 2]\n", "x.yaml:4: sites[0].cpu: 2 limits for 1 nodes"},
		{"no cpu", "sites:\n- name: a\n  preset: open\n  cpu: 0\n", "x.yaml:4: sites[0].cpu: 0 cores; want 0.001 to 1024"},
		{"unknown top key", one + "site: 1", "x.yaml:2: site: unknown key; did you mean sites?"},
		{"window", one + "window: 1KiB", "x.yaml:2: window: 1024 bytes; want 16384 to 33554432"},
		{"key twice", one + "sites: []", "x.yaml:2: sites: given twice; the first is at line 1"},
		{"unknown preset", "sites:\n- name: a\n  preset: statefull\n", `x.yaml:3: sites[0].preset: unknown preset "statefull"; known are open, port-range, `},
		{"public is no route", "sites:\n- {name: a, preset: no-route/public}\n", `x.yaml:2: sites[0].preset: unknown preset "no-route/public"`},
		{"preset missing", "sites:\n- name: a\n", `x.yaml:2: sites[0].preset: unknown preset ""`},
		{"site twice", "sites:\n- {name: a, preset: open}\n- {name: a, preset: nat}\n", `x.yaml:3: sites[1].name: site "a" is there twice`},
		{"site name", "sites: [{name: A/b, preset: open}]", `x.yaml:1: sites[0].name: "A/b" is no site name`},
		{"node name", "sites:\n- name: a\n  preset: open\n  nodes: [x, Y]\n", `x.yaml:4: sites[0].nodes: "Y" is no host name`},
		{"node twice", "sites: [{name: a, preset: open, nodes: [x, x]}]", `x.yaml:1: sites[0].nodes: the name "x" is taken`},
		{"node called gw", "sites: [{name: a, preset: open, nodes: [gw]}]", `x.yaml:1: sites[0].nodes: the name "gw" is taken`},
		{"node called proxy", "sites: [{name: a, preset: http-proxy, nodes: [proxy]}]", `x.yaml:1: sites[0].nodes: the name "proxy" is taken`},
		{"no nodes", "sites: [{name: a, preset: open, nodes: []}]", "x.yaml:1: sites[0].nodes: no node"},
		{"node count", "sites: [{name: a, preset: open, nodes: 201}]", `x.yaml:1: sites[0].nodes: "201" is neither a list of names nor a count between 1 and 200`},
		{"public gateway", "sites: [{name: a, preset: public, gateway: g}]", "x.yaml:1: sites[0].gateway: a public site has no gateway"},
		{"name is a list", "sites: [{name: [a], preset: open}]", "x.yaml:1: sites[0].name: a list where one value belongs"},
		{"sites is a value", "sites: 3", "x.yaml:1: sites: the number 3 where a list belongs"},
		{"ipv6", one + "ipv6: yes", `x.yaml:2: ipv6: the text "yes" where true or false belongs`},
		{"IPv6 alone behind a NAT", "sites: [{name: a, preset: nat, only-ipv6: true}]", "x.yaml:1: sites[0].only-ipv6: preset nat has no IPv6"},
		{"IPv6 alone behind a carrier's NAT", "sites: [{name: a, preset: cgnat-over-stateful, only-ipv6: true}]", "x.yaml:1: sites[0].only-ipv6: preset cgnat-over-stateful has no IPv6"},
		{"public with IPv6 alone", "sites: [{name: a, preset: public, only-ipv6: true}]", "x.yaml:1: sites[0].only-ipv6: preset public has no IPv6"},
		{"life of no mapping", "sites: [{name: a, preset: nat, udp-life: 1s}]", "x.yaml:1: sites[0].udp-life: preset nat does not end UDP mappings"},
		{"life too short", "sites: [{name: a, preset: nat-double, udp-life: 1ms}]", "x.yaml:1: sites[0].udp-life: 1ms is not 200ms or more"},
		{"life too fine", "sites: [{name: a, preset: nat-double, udp-life: 1000.5ms}]", "x.yaml:1: sites[0].udp-life: 1.0005s is not 200ms or more"},
		{"node called cgn", "sites: [{name: a, preset: nat-double, nodes: [cgn]}]", `x.yaml:1: sites[0].nodes: the name "cgn" is taken`},
		{"gateway called isp", "sites: [{name: a, preset: udp-slow, gateway: isp}]", `x.yaml:1: sites[0].gateway: the name "isp" is taken`},
		{"rtt", one + "wan:\n  rtt: 10\n", `x.yaml:3: wan.rtt: "10" is no duration between 0s and 1m; write it like 10ms`},
		{"negative rtt", one + "wan: {rtt: -1ms}", `x.yaml:2: wan.rtt: "-1ms" is no duration`},
		{"rtt and delay", one + "wan: {rtt: 1ms, delay: 1ms}", "x.yaml:2: wan.delay: give rtt (half of it goes to each direction) or delay, not both"},
		{"loss", one + "wan: {loss: 101%}", `x.yaml:2: wan.loss: "101%" is no share`},
		{"loss NaN", one + "wan: {loss: NaN}", `x.yaml:2: wan.loss: "NaN" is no share`},
		{"rate", one + "wan: {rate: 10Mb}", `x.yaml:2: wan.rate: "10Mb" is no rate`},
		{"queue", one + "wan: {queue: 4GB}", `x.yaml:2: wan.queue: "4GB" is no size`},
		{"pair without ends", one + "wan:\n  pairs:\n  - rtt: 1ms\n", "x.yaml:4: wan.pairs[0]: name two sites"},
		{"pair of three", one + "wan: {pairs: [{between: [a, b, c]}]}", "x.yaml:2: wan.pairs[0]: name two sites"},
		{"pair with both forms", one + "wan: {pairs: [{between: [a, b], from: a}]}", "x.yaml:2: wan.pairs[0]: name two sites"},
		{"pair unknown", one + "wan:\n  pairs:\n  - {between: [a, b]}\n", `x.yaml:4: wan.pairs[0]: "b" is neither a site nor a public host (site/host) of this file`},
		{"pair with a node", one + "wan: {pairs: [{between: [a, a/n1]}]}", `x.yaml:2: wan.pairs[0]: "a/n1" is neither a site nor a public host`},
		{"pair with itself", one + "wan: {pairs: [{between: [a, a]}]}", `x.yaml:2: wan.pairs[0]: both ends are "a"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse("x.yaml", []byte(c.text))
			if err == nil || !strings.HasPrefix(column.ReplaceAllString(err.Error(), "$1"), c.want) {
				t.Errorf("%v\nwant %s", err, c.want)
			}
		})
	}
}

func TestCheckBounds(t *testing.T) {
	many := Spec{}
	for range MaxSites + 1 {
		many.Sites = append(many.Sites, Site{Name: "x", Preset: "open", Nodes: Nodes(1)})
	}
	for i := range many.Sites {
		many.Sites[i].Name = "s" + string(rune('a'+i/26)) + string(rune('a'+i%26))
	}
	if err := many.Check(); err == nil || !strings.Contains(err.Error(), "the address plan ends at 100") {
		t.Errorf("101 sites: %v", err)
	}
	public := Spec{Sites: []Site{
		{Name: "a", Preset: Public, Nodes: Nodes(MaxPublic)},
		{Name: "b", Preset: "http-proxy", Nodes: Nodes(1)},
	}}
	if err := public.Check(); err == nil || !strings.Contains(err.Error(), "201 public hosts and proxies") {
		t.Errorf("201 public hosts: %v", err)
	}
}

// FuzzParse checks that Parse does not panic and that what it accepts can be planned, with all
// names and addresses different.
func FuzzParse(f *testing.F) {
	f.Add([]byte(goodSpec))
	f.Add([]byte("sites: [{name: a, preset: nat-fullcone, nodes: 200}]"))
	f.Add([]byte("ipv6: true\nsites: [{name: a, preset: nat-double, udp-life: 2s}, {name: p, preset: public}]"))
	f.Add([]byte("a: &x [*x]"))
	f.Add([]byte("sites: &s [{name: a, preset: open}]\nwan: *s"))
	f.Fuzz(func(t *testing.T, text []byte) {
		spec, err := Parse("f", text)
		if err != nil {
			return
		}
		p := makePlan(spec)
		seen := make(map[string]bool)
		for _, h := range p.hosts {
			for _, s := range slices.Concat([]string{h.name}, addresses(h)) {
				if seen[s] {
					t.Fatalf("%q is there twice", s)
				}
				seen[s] = true
			}
		}
	})
}

// addresses returns the host's addresses for others of its site.
func addresses(h hostPlan) []string {
	var all []string
	for _, a := range h.families() {
		all = append(all, a.addr.String())
	}
	return all
}
