//go:build system

package doctor

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
	"gopkg.in/yaml.v3"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/pki/ca"
	"github.com/isthmus-grid/isthmus/internal/support/doctor"
	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// siteOf returns the name of a test's site of that preset.
func siteOf(preset string) string { return "s-" + strings.ReplaceAll(preset, "/", "-") }

// trueCauses lists, for each kind of gateway, what a run must find as the cause: on a node behind
// it, on the gateway itself, and on the gateway of nodes without a route out. A gateway that keeps
// ports does not translate its own packets; one of nat-1to1 forwards incoming packets to its node,
// which has no listener; one of nat-answers takes everything addressed to it. Some kinds look alike
// from inside: stateful filters of all strictness, NATs that keep ports or not, and one NAT or two
// in a row seen from a node.
var trueCauses = map[string]struct{ node, gateway, hidden string }{
	"open":                {"", "", ""},
	"port-range":          {"", "", ""},
	"syn-drop":            {"inbound-dropped", "inbound-dropped", "inbound-dropped"},
	"syn-reset":           {"inbound-refused", "inbound-refused", "inbound-refused"},
	"stateful":            {"inbound-dropped", "inbound-dropped", "inbound-dropped"},
	"stateful-reject":     {"inbound-refused", "inbound-refused", "inbound-refused"},
	"stateful-strict":     {"inbound-dropped", "inbound-dropped", "inbound-dropped"},
	"stateful-strict-new": {"inbound-dropped", "inbound-dropped", "inbound-dropped"},
	"stateful-noloose":    {"inbound-dropped", "inbound-dropped", "inbound-dropped"},
	"nat":                 {"inbound-dropped nat", "inbound-dropped", "inbound-dropped"},
	"nat-answers":         {"inbound-refused nat", "", "inbound-refused"},
	"nat-random":          {"inbound-dropped nat", "inbound-dropped nat", "inbound-dropped nat"},
	"nat-fullcone":        {"nat", "inbound-dropped", "inbound-dropped"},
	"nat-1to1":            {"nat", "inbound-refused", ""},
	"nat-symmetric":       {"inbound-dropped nat nat-symmetric", "inbound-dropped nat-symmetric", "inbound-dropped nat-symmetric"},
	"no-udp":              {"inbound-dropped udp-blocked", "inbound-dropped udp-blocked", "inbound-dropped udp-blocked"},
	"egress-443":          {"egress-443 inbound-dropped udp-blocked", "egress-443 inbound-dropped udp-blocked", "egress-443 inbound-dropped udp-blocked"},
	"http-proxy":          {"egress-http-proxy udp-blocked", "egress-http-proxy udp-blocked", "egress-http-proxy udp-blocked"},
	"mtu-1400":            {"inbound-dropped mtu", "inbound-dropped mtu", "inbound-dropped mtu"},
	"nat-double":          {"inbound-dropped nat", "inbound-dropped nat", "inbound-dropped nat"},
	"udp-slow":            {"inbound-dropped udp-slow", "inbound-dropped udp-slow", "inbound-dropped udp-slow"},
	"nat-ipv6":            {"inbound-dropped nat", "inbound-dropped", "inbound-dropped"},
	"nat-symmetric-ipv6":  {"inbound-dropped nat nat-symmetric", "inbound-dropped nat-symmetric", "inbound-dropped nat-symmetric"},
	"syn-drop-no-udp":     {"inbound-dropped udp-blocked", "inbound-dropped udp-blocked", "inbound-dropped udp-blocked"},
}

// headers are the bytes of an IPv4 and a TCP header without options.
const headers = 40

// details are further findings required for some, on the node and on both gateways.
var details = map[string]struct{ node, gateway []string }{
	"open":     {node: []string{"not limited below"}, gateway: []string{"not limited below"}},
	"mtu-1400": {node: []string{"packets of 1400 bytes pass", "knows it (mtu 1400)", "ICMP inbound"}, gateway: []string{fmt.Sprintf("in segments of at most %d bytes", carrier.MinMTU-headers), "packets of 1400 bytes pass", "knows it (mtu 1400)"}},
	"udp-slow": {node: []string{labtest.RateText, "a low rate"}, gateway: []string{labtest.RateText}},
	"nat-double": {
		node: []string{"one or several in a row cannot be determined"}, gateway: []string{"theirs are changed twice", "RFC 6598"},
	},
	"nat-ipv6":           {node: []string{"IPv6: [2001:db8:", "(IPv6)"}, gateway: []string{"IPv6: [2001:db8:"}},
	"nat-symmetric-ipv6": {node: []string{"IPv6: [2001:db8:", "over IPv6 (2001:db8:"}, gateway: []string{"over IPv6 (2001:db8:"}},
	"syn-drop-no-udp":    {node: []string{"traversing"}, gateway: []string{"traversing"}},
}

// TestDoctorNamesTheCause runs the doctor behind every kind of gateway, and on it, and on nodes
// that have no route out: with the whole grid up nothing fails, and the doctor correctly names what
// the firewall blocks.
func TestDoctorNamesTheCause(t *testing.T) {
	t.Parallel() // most of it is waiting
	presets := slices.Sorted(maps.Keys(trueCauses))
	if all := slices.DeleteFunc(lab.Presets(), func(p string) bool { return strings.HasPrefix(p, "no-route/") || slices.Contains(presets, p) }); len(all) > 0 {
		t.Errorf("presets without an expectation: %q", all)
	}
	for part := range slices.Chunk(presets, 6) { // few processes at a time
		t.Run(part[0], func(t *testing.T) {
			t.Parallel()
			var sites strings.Builder
			for _, p := range part {
				fmt.Fprintf(&sites, "  - {name: %s, preset: %s, nodes: 1}\n  - {name: %s, preset: no-route/%s, nodes: 1}\n", siteOf(p), p, siteOf("no-route/"+p), p)
			}
			w := newWorld(t, sites.String(), grid.Config{Settings: overBoth(t, part)})
			for _, p := range part {
				want, more := trueCauses[p], details[p]
				var runs sync.WaitGroup // a run mostly waits
				runs.Go(func() { w.DoctorFinds("helper "+siteOf(p)+"/n1", want.node, more.node...) })
				if p == "udp-slow" {
					runs.Wait() // two of one site would share its limit
				}
				runs.Go(func() { w.DoctorFinds("frontal "+siteOf(p), want.gateway, more.gateway...) })
				runs.Go(func() { w.DoctorFinds("helper "+siteOf("no-route/"+p)+"/n1", "gateway-only") })
				runs.Go(func() { w.DoctorFinds("frontal "+siteOf("no-route/"+p), want.hidden, more.gateway...) })
				runs.Wait()
			}
		})
	}
}

// overBoth makes the first proxy listen over IPv6 too, if a site of the presets has IPv6, and with
// it the public hosts.
func overBoth(t *testing.T, presets []string) map[string]map[string]any {
	for _, p := range presets {
		profile, err := lab.Profile(p)
		if err != nil {
			t.Fatal(err)
		}
		if profile.IPv6 {
			both := []string{"203.0.113.3:443", "[2001:db8:ffff::3]:443"}
			return map[string]map[string]any{"proxy p1": {"listen": both, "advertise": both}}
		}
	}
	return nil
}

// fails runs the doctor and compares the class it names and its status.
func (w *world) fails(daemon string, want doctor.Class, evidence string, words ...string) {
	w.T.Helper()
	w.judged(daemon, func() doctor.Report { return w.Doctor(daemon, words...) }, want, evidence)
}

// judged compares a run's report with the class and a part of the required evidence of a finding of
// that class.
func (w *world) judged(daemon string, run func() doctor.Report, want doctor.Class, evidence string) {
	w.T.Helper()
	w.DoctorReports(daemon, run, func(r doctor.Report) error {
		seen := slices.ContainsFunc(r.Findings, func(f doctor.Finding) bool {
			return f.Class == want && f.Status == doctor.Failed && strings.Contains(f.Evidence+" | "+f.Meaning+" | "+f.Device, evidence)
		})
		if r.Class != want || r.Exit != want.ExitCode() || !seen {
			return fmt.Errorf("named %s, status %d; want %s with %q", r.Class, r.Exit, want, evidence)
		}
		return nil
	})
}

// changed returns the settings file of a daemon with other values, such as an admin's typing
// errors; a map's values replace those of a map.
func (w *world) changed(daemon string, values map[string]any) string {
	w.T.Helper()
	text, err := os.ReadFile(w.SettingsFile(daemon))
	if err != nil {
		w.T.Fatal(err)
	}
	settings := map[string]any{}
	if err := yaml.Unmarshal(text, &settings); err != nil {
		w.T.Fatal(err)
	}
	for k, v := range values {
		inner, ok := v.(map[string]any)
		if old, isMap := settings[k].(map[string]any); ok && isMap {
			maps.Copy(old, inner)
			continue
		}
		settings[k] = v
	}
	text, err = yaml.Marshal(settings)
	if err != nil {
		w.T.Fatal(err)
	}
	file := filepath.Join(w.T.TempDir(), "settings.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		w.T.Fatal(err)
	}
	return file
}

// TestDoctorOnABrokenGrid breaks one thing at a time: the doctor names the
// layer and the class of each, on the node and on the gateway.
func TestDoctorOnABrokenGrid(t *testing.T) {
	t.Parallel() // most of it is waiting
	w := newWorld(t, labtest.SiteClosed+labtest.SiteHidden+"  - {name: web, preset: http-proxy, nodes: 1}\n", grid.Config{})
	with := func(daemon string, values map[string]any, want doctor.Class, evidence string) {
		t.Helper()
		file := w.changed(daemon, values)
		w.judged(daemon, func() doctor.Report { return w.DoctorWith(daemon, "--config", file) }, want, evidence)
	}

	with("helper closed/n1", map[string]any{"frontal": "gateway.nowhere.example:7440"}, doctor.Name, "gateway.nowhere.example")
	with("helper closed/n1", map[string]any{"frontal": w.Daemon("helper closed/n2").Host.Addr().String() + ":7440"}, doctor.TCPRefused, "reset")
	with("helper hidden/n1", map[string]any{"frontal": "203.0.113.2:443"}, doctor.NoRoute, "routing table")
	with("helper closed/n1", map[string]any{"frontal": "203.0.113.2:443"}, doctor.Settings, "this is broker broker")
	with("helper closed/n1", map[string]any{"socket": "/run/nowhere.sock"}, doctor.HelperSocket, "no such file")
	with("helper closed/n1", map[string]any{"sokcet": "x"}, doctor.Settings, "sokcet")
	with("frontal web", map[string]any{"http_proxy": nil, "profile": map[string]any{"egress": "any"}}, doctor.TCPDropped, "no answer to a SYN")
	with("frontal web", map[string]any{"broker": "203.0.113.2:444"}, doctor.HTTPProxy, "403")
	with("frontal hidden", map[string]any{"broker": "203.0.113.2:444"}, doctor.TCPDropped, "own firewall")

	foreign := w.foreign()
	with("helper closed/n1", map[string]any{"tls": map[string]any{"ca": foreign}}, doctor.Certificate, "was not issued by the CA")
	expired, err := w.Issue(control.Identity{Role: control.RoleHelper, Site: "closed", Name: "late"}, time.Now().Add(-overlay.MaxLate-time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	with("helper closed/n1", map[string]any{"tls": map[string]any{"cert": expired.Cert, "key": expired.Key}}, doctor.Certificate, "expired")

	with("frontal closed", map[string]any{"broker": w.interceptor("public/stranger")}, doctor.Intercepted, "Inspection")

	w.DoctorFinds("frontal closed", "inbound-dropped") // nothing is broken until here
	if err := w.Lab.Cut("closed", "public/broker"); err != nil {
		t.Fatal(err)
	}
	w.fails("frontal closed", doctor.TCPDropped, "no answer to a SYN")
	w.fails("helper closed/n1", doctor.BrokerAway, "")
	if err := w.Lab.Restore("closed", "public/broker"); err != nil {
		t.Fatal(err)
	}
	w.Until("the frontal to be back at its broker", func() bool { return w.Figure("frontal closed", "broker", "up") == true })

	if err := w.Daemon("helper closed/n1").Stop(); err != nil {
		t.Fatal(err)
	}
	w.fails("helper closed/n1", doctor.HelperSocket, "helper")
	if err := w.Daemon("broker").Stop(); err != nil {
		t.Fatal(err)
	}
	w.AwaitLog("frontal closed", "broker")
	w.fails("frontal closed", doctor.TCPRefused, "reset")
	w.fails("helper closed/n2", doctor.BrokerAway, "has no session with the broker")
	w.fails("helper hidden/n1", doctor.BrokerAway, "has no session with the broker")
	if err := w.Daemon("frontal hidden").Stop(); err != nil {
		t.Fatal(err)
	}
	w.fails("helper hidden/n1", doctor.TCPRefused, "reset")
}

// Two hosts with one helper's certificate: the second is refused, the first goes on, and the doctor says
// so on both, and isthmus hosts to everybody.
func TestDoctorOnACopiedCertificate(t *testing.T) {
	t.Parallel() // most of it is waiting
	w := newWorld(t, labtest.SiteClosed+labtest.SiteHidden, grid.Config{})
	text, err := os.ReadFile(w.SettingsFile("helper closed/n1"))
	if err != nil {
		t.Fatal(err)
	}
	var settings struct {
		TLS struct{ Cert, Key, CA string }
	}
	if err := yaml.Unmarshal(text, &settings); err != nil {
		t.Fatal(err)
	}
	e, to := w.Visitor(t, ca.Files(settings.TLS), "frontal closed", "closed/n2", 7440)
	to.Visit = false
	s, err := e.Dial(w.Ctx, to)
	if err != nil {
		t.Fatal(err)
	}
	_, err = controlpb.NewNodesClient(s.Conn()).Enter(w.Ctx, &controlpb.EnterRequest{})
	if err = control.FromStatus(err); !errors.Is(err, overlay.ErrForbidden) || !strings.Contains(err.Error(), "two hosts present the certificate of helper closed/n1") {
		t.Errorf("the second host is told %v", err)
	}
	w.fails("helper closed/n1", doctor.Contested, "whose session goes on, and from "+w.Daemon("helper closed/n2").Host.Addr().String())
	w.AwaitLog("helper closed/n1", "two hosts present the certificate")
	copied := w.changed("helper closed/n2", map[string]any{"tls": map[string]any{"cert": settings.TLS.Cert, "key": settings.TLS.Key}})
	w.judged("helper closed/n2", func() doctor.Report { return w.DoctorWith("helper closed/n2", "--config", copied) }, doctor.Contested, "helper closed/n1")
	for _, node := range []string{"closed/n2", "hidden/n1"} {
		w.Until(node+" to list the node with what is wrong", func() bool {
			cmd := w.Isthmus("hosts", "--helper", w.Socket(node))
			out, err := cmd.CombinedOutput()
			return err == nil && strings.Contains(string(out), "closed/n1: two hosts present the certificate of helper closed/n1")
		})
	}
}

// TestDoctorForAPair asks the broker about two sites, from a node and from a host outside the grid.
func TestDoctorForAPair(t *testing.T) {
	t.Parallel() // most of it is waiting
	w := newWorld(t, labtest.SiteClosed+labtest.SiteHidden, grid.Config{})
	files, err := w.Issue(control.Identity{Role: control.RoleAdmin, Name: "ada"}, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	admin := []string{"--broker", w.Daemon("broker").Host.Addr().String() + ":443", "--cert", files.Cert, "--tls-key", files.Key, "--ca", files.CA}
	node := append([]string{"--config", w.SettingsFile("helper closed/n1")}, admin...)
	for daemon, words := range map[string][]string{"helper closed/n1": node, "broker": admin} {
		ask := func() doctor.Report { return w.DoctorWith(daemon, append(words, "closed/n1", "hidden")...) }
		w.DoctorReports(daemon, ask, func(r doctor.Report) error {
			pair := slices.IndexFunc(r.Findings, func(f doctor.Finding) bool { return f.Layer == "pair" })
			if r.Exit != 0 || pair < 0 || !strings.Contains(r.Findings[pair].Evidence, "relay (") {
				return fmt.Errorf("status %d, finding %d is of the pair", r.Exit, pair)
			}
			if want := map[string]int{"helper closed/n1": 2, "broker": 4}[daemon]; len(r.Elsewhere) != want {
				return fmt.Errorf("%d things to test elsewhere, want %d: %q", len(r.Elsewhere), want, r.Elsewhere)
			}
			return nil
		})
	}
	nowhere := func() doctor.Report { return w.DoctorWith("broker", append(admin, "closed", "nowhere")...) }
	w.judged("broker", nowhere, doctor.SiteAway, "nowhere")
	if err := w.Daemon("frontal hidden").Stop(); err != nil {
		t.Fatal(err)
	}
	w.Until("the broker to miss the gateway of hidden", func() bool {
		r := w.DoctorWith("broker", append(admin, "closed", "hidden")...)
		return r.Class == doctor.SiteAway && r.Exit == doctor.SiteAway.ExitCode()
	})
}

// foreign writes the CA certificate of another grid.
func (w *world) foreign() string {
	w.T.Helper()
	a, _, err := ca.New("foreign", time.Hour)
	if err != nil {
		w.T.Fatal(err)
	}
	file := filepath.Join(w.T.TempDir(), "ca.pem")
	if err := os.WriteFile(file, a.CertPEM(), 0o600); err != nil {
		w.T.Fatal(err)
	}
	return file
}

// interceptor accepts TLS on a host as an inspecting firewall does, with a certificate of its own,
// and returns its address. It ends with the test.
func (w *world) interceptor(host string) string {
	w.T.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		w.T.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Corporate Inspection"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		w.T.Fatal(err)
	}
	h := w.Lab.Host(host)
	ln, err := h.Listen("tcp4", ":443")
	if err != nil {
		w.T.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer c.Close()
				c.SetDeadline(time.Now().Add(labtest.Patience))
				conn := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, MaxVersion: tls.VersionTLS12})
				io.Copy(io.Discard, conn) // until the client leaves
			})
		}
	})
	w.T.Cleanup(func() { ln.Close(); serving.Wait() })
	return netip.AddrPortFrom(h.Addr(), 443).String()
}

// TestDoctorFindsABlackHole: behind a gateway whose uplink carries 1400 bytes and whose ICMP errors
// are lost, small packets pass and large ones are dropped.
func TestDoctorFindsABlackHole(t *testing.T) {
	t.Parallel() // most of it is waiting
	w := newWorld(t, labtest.SiteClosed, grid.Config{})
	w.DoctorFinds("helper closed/n1", "inbound-dropped")
	err := w.Lab.Host("closed/gw").Do(func() error { return errors.Join(lab.SetMTU("wan0", 1400), dropFragNeeded()) })
	if err != nil {
		t.Fatal(err)
	}
	w.fails("helper closed/n1", doctor.MTU, "black hole")
}

// dropFragNeeded prevents the calling thread's namespace from sending ICMP type 3 code 4.
func dropFragNeeded() error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	table := c.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: "blackhole"})
	chain := c.AddChain(&nftables.Chain{Name: "output", Table: table, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityFilter})
	c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_ICMP}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 0, Len: 2},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{3, 4}},
		&expr.Verdict{Kind: expr.VerdictDrop},
	}})
	return c.Flush()
}

// A long path is not a fault: over 900 ms the doctor finds the same as over 4 ms, on nodes and
// gateways, also behind an HTTP proxy.
func TestDoctorOverALongWay(t *testing.T) {
	t.Parallel() // most of it is waiting
	w := newWorldOver(t, "{rtt: 1400ms}", labtest.SiteClosed+labtest.SiteHidden+"  - {name: web, preset: http-proxy, nodes: 1}\n", grid.Config{})
	for _, f := range []string{"frontal closed", "frontal web"} {
		w.Until("the broker's answer to be at "+f, func() bool { return w.Figure(f, "broker", "up") == true })
	}
	for _, c := range []struct{ daemon, want string }{
		{"helper closed/n1", "inbound-dropped"},
		{"frontal closed", "inbound-dropped"},
		{"helper web/n1", "egress-http-proxy udp-blocked"},
		{"frontal web", "egress-http-proxy udp-blocked"},
	} {
		w.DoctorFinds(c.daemon, c.want)
	}
}

// On unforeseen networks the doctor names the faults, on the node and on the gateway.
func TestDoctorOnUnforeseenNetworks(t *testing.T) {
	t.Parallel() // most of it is waiting
	wants := map[string][2]string{
		"wscale-stripped":           {"inbound-dropped tcp-options", "inbound-dropped tcp-options"},
		"options-stripped":          {"inbound-dropped tcp-options", "inbound-dropped tcp-options"},
		"mtu-1300-blackhole":        {"inbound-dropped mtu", "inbound-dropped mtu"},
		"cgnat-over-stateful":       {"inbound-dropped nat", "inbound-dropped nat"},
		"nat-tcp-symmetric-udp-eim": {"inbound-dropped nat nat-symmetric", "inbound-dropped nat-symmetric"},
	}
	var sites strings.Builder
	for p := range wants {
		fmt.Fprintf(&sites, "  - {name: %s, preset: %s, nodes: 1}\n", siteOf(p), p)
	}
	w := newWorld(t, sites.String(), grid.Config{Measured: true})
	if err := w.AwaitMeasured(w.Ctx); err != nil {
		t.Fatal(err)
	}
	for p, want := range wants {
		var details []string
		if p == "nat-tcp-symmetric-udp-eim" {
			details = []string{"TCP mappings depend on the destination, UDP's do not", "RFC 5382, REQ-1"}
		}
		w.DoctorFinds("helper "+siteOf(p)+"/n1", want[0], details...)
		w.DoctorFinds("frontal "+siteOf(p), want[1], details...)
	}
}
