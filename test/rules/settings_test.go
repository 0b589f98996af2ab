package rules

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/isthmus-grid/isthmus/broker"
	"github.com/isthmus-grid/isthmus/connhelper"
	"github.com/isthmus-grid/isthmus/frontal"
	"github.com/isthmus-grid/isthmus/internal/daemon"
	"github.com/isthmus-grid/isthmus/internal/policy"
	"github.com/isthmus-grid/isthmus/internal/policy/netrule"
	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/launch/starter"
	"github.com/isthmus-grid/isthmus/proxy"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
	"github.com/isthmus-grid/isthmus/test/internal/page"
)

// settingsKind is a kind of file that the pages show.
type settingsKind struct {
	name  string
	keys  []string // at its top
	parse func(text string) error
}

// settings is the kind of a daemon's file. The lines in needed, without which it does not start, are
// added to what a page shows.
func settings[C any](name string, needed ...string) settingsKind {
	return settingsKind{name, daemon.Keys[C](), func(text string) error {
		for _, line := range needed {
			if key, _, _ := strings.Cut(line, " "); !strings.HasPrefix(text, key) && !strings.Contains(text, "\n"+key) {
				text += line + "\n"
			}
		}
		if faults, _, _ := daemon.Examine[C](name+".yaml", []byte(text)); len(faults) > 0 {
			return faults
		}
		return nil
	}}
}

const identity = "tls: {cert: c.pem, key: k.pem, ca: ca.pem}"

var settingsKinds = []settingsKind{
	settings[broker.Config]("broker", identity),
	settings[proxy.Config]("proxy", identity, "broker: b:443"),
	settings[frontal.Config]("frontal", identity, "broker: b:443", "site: sitea", "listen: 10.1.0.1:7440"),
	settings[connhelper.Config]("helper", identity, "frontal: f:7440"),
	settings[starter.Config]("starter"),
	{"policy", []string{"mode", "contact", "zone", "rules"}, func(text string) error {
		_, err := policy.Parse("policy.yaml", []byte(text))
		return err
	}},
	{"site", []string{"ipv6", "wan", "sites"}, func(text string) error {
		_, err := lab.Parse("site.yaml", []byte(text))
		return err
	}},
}

// complete adds to a part of a file what it has beside it according to the page.
func complete(text string) string {
	switch {
	case strings.HasPrefix(text, "  oidc:"):
		return "enrol:\n  cert: c.pem\n  key: k.pem\n" + text
	case strings.HasPrefix(text, "profile: ") && strings.Contains(text, "egress: http-proxy"):
		return text + "http_proxy: {address: p:3128}\n"
	case strings.HasPrefix(text, "data_listen: "):
		return text + "profile: {gateway_only: true}\n"
	case strings.HasPrefix(text, "mode: ") && !strings.Contains(text, "contact: "):
		return text + "contact: ada@sitea.example.org\n"
	case strings.HasPrefix(text, "limits: ") && strings.Contains(text, "bytes_month"): // of a policy's rule
		return "contact: ada@sitea.example.org\nrules:\n- name: r\n  effect: allow\n  sites: [siteb]\n  " + text
	}
	return text
}

// checkSettings reports what is wrong with a text of settings: as the kind that its title or first
// line names, or else as each kind that knows its first key.
func checkSettings(title, text string) error {
	text = complete(text)
	heading := title + "\n" + text[:strings.Index(text, "\n")]
	for _, k := range settingsKinds {
		if strings.Contains(heading, "**"+k.name+".yaml**") || strings.HasPrefix(text, "# /etc/isthmus/"+k.name+".yaml") {
			return k.parse(text)
		}
	}
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		return err
	}
	if len(doc.Content) == 0 || doc.Content[0].Kind != yaml.MappingNode || len(doc.Content[0].Content) == 0 {
		return errors.New("no settings")
	}
	first := doc.Content[0].Content[0].Value
	var wrong error
	for _, k := range settingsKinds {
		if !slices.Contains(k.keys, first) {
			continue
		}
		err := k.parse(text)
		if err == nil {
			return nil
		}
		wrong = errors.Join(wrong, err)
	}
	if wrong == nil {
		var all []string
		for _, k := range settingsKinds {
			all = append(all, k.keys...)
		}
		wrong = fmt.Errorf("no file has the key %s%s", first, daemon.DidYouMean(first, "", all))
	}
	return wrong
}

// TestSettingsInPages: settings in the documentation are those that the daemons have.
func TestSettingsInPages(t *testing.T) {
	blocks, profiles := 0, 0
	for _, name := range documentation(t) {
		p := page.Parse(labtest.ReadFile(t, name))
		for _, b := range p.Blocks {
			if b.Language != "yaml" {
				continue
			}
			blocks++
			if err := checkSettings(b.Title, b.Text()); err != nil {
				t.Errorf("%s:%d: %v", name, b.Number, err)
			}
		}
		for _, s := range p.Spans {
			text, ok := inlineSettings(s.Text)
			if !ok {
				continue
			}
			profiles++
			if err := checkSettings("", text+"\n"); err != nil {
				t.Errorf("%s:%d: `%s`: %v", name, s.Number, s.Text, err)
			}
		}
	}
	if blocks < 10 || profiles < 10 {
		t.Errorf("only %d blocks and %d settings between backquotes were found", blocks, profiles)
	}
}

// inlineSettings returns the settings between backquotes, such as a site's profile or a key with its
// value.
func inlineSettings(text string) (string, bool) {
	if strings.HasPrefix(text, "{inbound: ") {
		return "profile: " + text, true
	}
	key, value, ok := strings.Cut(text, ": ")
	if !ok || strings.Contains(key, " ") || strings.HasPrefix(value, "{") && !strings.Contains(value, ": ") { // names of keys only
		return "", false
	}
	for _, k := range settingsKinds {
		if slices.Contains(k.keys, key) {
			return text, true
		}
	}
	return "", false
}

// The rules must be able to complain.
func TestSettingRulesComplain(t *testing.T) {
	for _, tc := range []struct{ title, text, want string }{
		{"**proxy.yaml**", "broker: b:1\nadvertize: [1.2.3.4:443]\n", "advertize: unknown key; did you mean advertise?"},
		{"", "ofer:\n  jobs: 2\n", "no file has the key ofer; did you mean offer?"},
		{"", "offer:\n  job: 2\n", "unknown key; did you mean jobs?"},
		{"", "# /etc/isthmus/starter.yaml\nmaps: []\n", "maps: unknown key; did you mean map?"},
		{"", "  oidc:\n    isuer: https://x\n", "isuer: unknown key; did you mean issuer?"},
		{"", "rules:\n- {name: x, effect: allow, project: [y]}\n", "project"},
		{"", "sites:\n- {name: x, preset: openn}\n", "openn"},
		{"", "profile: {inbound: noone}\n", "noone"},
		{"", "frontal: 10.1.0.1:7440\n", ""},
	} {
		err := checkSettings(tc.title, tc.text)
		if got := fmt.Sprint(err); tc.want == "" && err != nil || !strings.Contains(got, tc.want) {
			t.Errorf("%s: complaint %q, want %q", tc.text, got, tc.want)
		}
	}
}

// Gateways of the example grid that share a network list it in private, so that they may dial each other there.
func TestComposeGatewaysMeet(t *testing.T) {
	var file struct {
		Services map[string]struct {
			Networks map[string]struct {
				Address netip.Addr `yaml:"ipv4_address"`
			}
		}
		Networks map[string]struct {
			IPAM struct {
				Config []struct{ Subnet netip.Prefix }
			} `yaml:"ipam"`
		}
	}
	if err := yaml.Unmarshal([]byte(labtest.ReadFile(t, "deploy/compose/compose.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	var rule netrule.Rule
	if m := regexp.MustCompile(`"private: (\[.*\])"`).FindStringSubmatch(labtest.ReadFile(t, "deploy/compose/prepare")); m != nil {
		if err := yaml.Unmarshal([]byte(m[1]), &rule.Private); err != nil {
			t.Fatal(err)
		}
	}
	gateways := map[string][]netip.Addr{} // by network
	for service, s := range file.Services {
		for network, at := range s.Networks {
			if strings.HasPrefix(service, "frontal-") {
				gateways[network] = append(gateways[network], at.Address)
			}
		}
	}
	shared := 0
	for network, at := range gateways {
		if len(at) < 2 {
			continue
		}
		shared++
		rule.Own = []netip.Prefix{file.Networks[network].IPAM.Config[0].Subnet}
		for _, ip := range at {
			if err := rule.Foreign(ip); err != nil {
				t.Errorf("network %s: %v", network, err)
			}
		}
	}
	if shared != 1 {
		t.Errorf("%d networks are shared by gateways", shared)
	}
}
