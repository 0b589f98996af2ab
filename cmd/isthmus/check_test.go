package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/pki/ca"
)

// write puts a file into a folder and returns the folder.
func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestCheck: every kind of file is recognised by its keys, and each error is reported with line and
// key; the status reflects the severity.
func TestCheck(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, _, err := ca.New("test", 24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	// tls returns the key tls of settings that name files of the identity.
	tls := func(of string) string {
		id, err := control.ParseIdentity(of)
		if err != nil {
			t.Fatal(err)
		}
		files, err := a.Write(t.TempDir(), id, time.Now().Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("tls: {cert: %s, key: %s, ca: %s}\n", files.Cert, files.Key, files.CA)
	}
	helper, frontal := tls("helper sitea/a1"), tls("frontal sitea")
	files := map[string]string{
		"broker.yaml":  "lease: 2s\ntls: {cert: here, key: here, ca: here}\nproxy_choise: turn\n",
		"f.yaml":       "site: sitea\nbroker: b:443\nlisten: 10.0.0.1:1\nprofile: {inbound: none}\n" + strings.Replace(frontal, ", key: ", ", key: gone", 1),
		"good.yaml":    "frontal: 10.0.0.1:7440\n" + helper + "offer: {jobs: 1, allow: [{site: sitea}]}\n",
		"closed.yaml":  "frontal: 10.0.0.1:7440\n" + helper,
		"nobody.yaml":  "frontal: 10.0.0.1:7440\n" + helper + "offer: {jobs: 2}\n",
		"inside.yaml":  "site: sitea\nbroker: b:443\nlisten: 10.0.0.1:1\nprofile: {inbound: none}\n" + frontal,
		"policy.yaml":  "contact: x\nrules:\n- {name: a, effect: allow, tecniques: [relay]}\n",
		"doubtful.yml": "contact: x\nrules:\n- {name: a, effect: allow}\n- {name: b, effect: deny, sites: [x]}\n",
		"lab.yaml":     "sites:\n- {name: a, preset: stateful}\n- {name: b, preset: nosuch}\n",
		"what.yaml":    "colour: blue\n",
		"here":         "",

		"isthmus-frontal.socket": "[Unit]\nDescription=x\n[Socket]\nListenStream=10.1.0.1:443\nFileDescriptorName=listen\n",
		"isthmus-proxy.socket":   "[Socket]\nListenStream=/run/x\nFileDescriptorName=listn\nAccept=yes\n",
		"x.socket":               "[Socket]\nListenStream=443\n",
		"m.socket":               "[Socket]\nService=isthmus-broker.service\nListenStream=[::1]:9480\nFileDescriptorName=status_listen\n",
		"n.socket":               "[Socket]\nService=isthmus-helper.service\n# nothing more\n",
	}
	for name, text := range files {
		write(t, dir, name, text)
	}
	for _, c := range []struct {
		words  []string
		status int
		want   string
	}{
		{[]string{"good.yaml"}, 0, "good.yaml: ok (helper)"},
		{[]string{"closed.yaml"}, 0, "closed.yaml: note: offer.jobs: 0, so this node accepts no job; to let it accept one job at a time from users of its own site, write\noffer: {jobs: 1, allow: [{site: sitea}]}\nclosed.yaml: ok (helper)"},
		{[]string{"nobody.yaml"}, 2, "nobody.yaml:3:8: error: offer.allow: jobs is 2, but no submitter is allowed; set allow, for example allow: [{site: sitea}], or for every member of the grid"},
		{[]string{"inside.yaml"}, 0, "inside.yaml: note: policy: not set, so links with other sites are refused (rule no-policy); to permit site siteb, add the line\npolicy: /etc/isthmus/policy.yaml\n" +
			"and write into that file\n{contact: grid@sitea.example.org, rules: [{name: siteb, effect: allow, sites: [siteb]}]}\ninside.yaml: ok (frontal)"},
		{[]string{"broker.yaml"}, 2, "broker.yaml:3:1: error: proxy_choise: unknown key; did you mean proxy_choice?"},
		{[]string{"f.yaml"}, 1, ": warning: tls.key: open gone"},
		{[]string{"policy.yaml"}, 2, "policy.yaml:3:28: error: rules[0].tecniques: unknown key; did you mean techniques?"},
		{[]string{"doubtful.yml"}, 1, `doubtful.yml:4:3: warning: rules[1]: rule "b" is never reached`},
		{[]string{"lab.yaml"}, 2, "lab.yaml: error: this describes the sites of a laboratory; check it with: isthmus-lab check lab.yaml"},
		{[]string{"what.yaml"}, 2, "what.yaml: error: cannot tell from its keys which kind of file it is; name the kind with --as: broker, frontal"},
		{[]string{"--as", "proxy", "what.yaml"}, 2, "what.yaml:1:1: error: colour: unknown key"},
		{[]string{"isthmus-frontal.socket", "m.socket"}, 0, "isthmus-frontal.socket: ok (socket)\nm.socket: ok (socket)"},
		{[]string{"isthmus-proxy.socket"}, 2, `isthmus-proxy.socket:2: error: ListenStream: "/run/x" is neither`},
		{[]string{"isthmus-proxy.socket"}, 2, `isthmus-proxy.socket:3: error: FileDescriptorName: "listn" is no setting of isthmus-proxy that listens; want one of listen, metrics_listen`},
		{[]string{"isthmus-proxy.socket"}, 2, "isthmus-proxy.socket:4: error: Accept: "},
		{[]string{"x.socket"}, 2, "x.socket: error: Service: this is for x;"},
		{[]string{"n.socket"}, 2, "n.socket: error: FileDescriptorName: not given; want the name of the setting whose address this is: one of metrics_listen"},
		{[]string{"n.socket"}, 2, "n.socket: error: ListenStream: not given"},
		{[]string{"nosuch.yaml"}, 2, "nosuch.yaml: error: no such file"},
		{[]string{"good.yaml", "doubtful.yml"}, 1, "good.yaml: ok (helper)"},
		{[]string{"../../../../../../../../dev/zero"}, 2, "more than 4MiB"},
	} {
		r := isthmus(t, dir, append([]string{"check"}, c.words...)...)
		if r.status != c.status || !strings.Contains(r.stdout, c.want) || r.stderr != "" {
			t.Errorf("check %q: status %d, want %d\n%s%s\nwant %s", c.words, r.status, c.status, r.stdout, r.stderr, c.want)
		}
	}
	r := isthmus(t, dir, "check", "--json", "policy.yaml")
	var one struct {
		File, As string
		Status   int
		Findings []cmdline.Finding
	}
	if err := json.Unmarshal([]byte(r.stdout), &one); err != nil || one.As != "policy" || one.Status != 2 || len(one.Findings) != 1 || one.Findings[0].Line != 3 || one.Findings[0].Key != "rules[0].tecniques" {
		t.Errorf("%v: %s", err, r.stdout)
	}
	for words, want := range map[string]string{"check": "check: want FILE...", "check --as x good.yaml": "check: --as x: want one of broker"} {
		if r := isthmus(t, dir, strings.Fields(words)...); r.status != 2 || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: %d %s", words, r.status, r.stderr)
		}
	}
}

// TestCheckFiles: whatever is wrong with the files that settings name is reported with the line and the
// key, for every daemon, and by the daemon itself before it does anything.
func TestCheckFiles(t *testing.T) {
	t.Parallel()
	a, _, err := ca.New("test", 24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	issue := func(of string) ca.Files {
		id, err := control.ParseIdentity(of)
		if err != nil {
			t.Fatal(err)
		}
		files, err := a.Write(filepath.Join(dir, strings.NewReplacer(" ", "-", "/", "-").Replace(of)), id, time.Now().Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		return files
	}
	write(t, dir, "empty", "")
	write(t, dir, "two", "secret\nolder\n")
	write(t, dir, "policy.yaml", "contact: x\nrules:\n- {name: a, effect: allow, tecniques: [relay]}\n")
	own := map[string]ca.Files{"broker": issue("broker main"), "frontal": issue("frontal sitea"), "proxy": issue("proxy p1"), "helper": issue("helper sitea/a1")}
	siteb, user := issue("frontal siteb"), issue("user ada")
	rest := map[string]string{
		"broker": "", "frontal": "site: sitea\nbroker: b:443\nlisten: 10.0.0.1:1\n", "proxy": "broker: b:443\n", "helper": "frontal: 10.0.0.1:7440\n",
	}
	for kind, files := range own {
		for i, c := range []struct{ cert, key, ca, more, want string }{
			{files.Cert, files.Key, files.CA, "", ""},
			{files.Cert, files.Key, files.Cert, "", "tls.ca: " + files.Cert + ": CA certificate: it is the certificate of "},
			{files.Cert, user.Key, files.CA, "", "tls.key: " + user.Key + ": key: it is not the key of the certificate"},
			{user.Cert, user.Key, files.CA, "", "tls.cert: " + user.Cert + ": it is the certificate of user ada, and these are the settings of a " + kind},
			{filepath.Join(dir, "empty"), files.Key, files.CA, "", "tls.cert: " + filepath.Join(dir, "empty") + ": certificate: the file is empty"},
			{siteb.Cert, siteb.Key, files.CA, "", "tls.cert: " + siteb.Cert + ": it is the certificate of frontal siteb, and "},
			{files.Cert, files.Key, files.CA, "http_proxy: {address: 'p:3128', user: u, password_file: two}\n", "http_proxy.password_file: two: the file has several lines"},
			{files.Cert, files.Key, files.CA, "http_proxy: {address: 'p:3128', user: u, password_file: empty}\n", "http_proxy.password_file: empty: the file is empty"},
			{files.Cert, files.Key, files.CA, "policy: policy.yaml\n", "policy.yaml:3:28: rules[0].tecniques: unknown key"},
			{files.Cert, files.Key, files.CA, fmt.Sprintf("store: s.db\nenrol: {cert: %s, key: %s}\n", files.Cert, files.Key), "enrol.cert: " + files.Cert},
		} {
			word, _, _ := strings.Cut(c.more, ":")
			if word != "" && word != map[string]string{"frontal": "policy", "broker": "store"}[kind] && !(word == "http_proxy" && (kind == "frontal" || kind == "helper")) {
				continue // no key of its settings
			}
			text := rest[kind] + fmt.Sprintf("tls: {cert: %s, key: %s, ca: %s}\n", c.cert, c.key, c.ca) + c.more
			write(t, dir, kind+".yaml", text)
			r := isthmus(t, dir, "check", "--as", kind, kind+".yaml")
			if want := map[bool]int{true: 0, false: 2}[c.want == ""]; r.status != want || !strings.Contains(r.stdout, c.want) || c.want != "" && !strings.Contains(r.stdout, ": error: ") {
				t.Errorf("%s: status %d, want %d and %q\n%s%s", kind, r.status, want, c.want, r.stdout, r.stderr)
			}
			if i > 1 {
				continue // by the same function as check
			}
			if r := isthmus(t, dir, kind, "--config", kind+".yaml", "--check"); (r.status == 0) != (c.want == "") || !strings.Contains(r.stderr, c.want) {
				t.Errorf("%s --check: status %d, want %q\n%s%s", kind, r.status, c.want, r.stdout, r.stderr)
			}
		}
	}
}

// No file ends the program that looks at it, whatever it is taken for.
func FuzzCheck(f *testing.F) {
	samples, err := filepath.Glob("../../deploy/config/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range samples {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte("[Socket]\nListenStream=10.1.0.1:443\nFileDescriptorName=listen\n"))
	f.Add([]byte("tls: {cert: check_test.go, key: check_test.go, ca: check_test.go}\nfrontal: a:1\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, k := range fileKinds() {
			k.check("isthmus-"+k.name+".yaml", text)
		}
	})
}

// TestSamplesPassCheck: the only errors in the files in deploy/config are names of files that do
// not exist on this machine.
func TestSamplesPassCheck(t *testing.T) {
	t.Parallel()
	samples, err := filepath.Glob("../../deploy/config/*.yaml")
	if err != nil || len(samples) < 5 {
		t.Fatal(samples, err)
	}
	for _, file := range samples {
		r := isthmus(t, ".", "check", "--json", file)
		var one struct {
			As       string
			Status   int
			Findings []cmdline.Finding
		}
		if err := json.Unmarshal([]byte(r.stdout), &one); err != nil || one.Status > 1 || one.As+".yaml" != filepath.Base(file) {
			t.Errorf("%v: %s", err, r.stdout)
		}
		for _, f := range one.Findings {
			if f.Severity != cmdline.Noted && !strings.Contains(f.Text, "/etc/isthmus/") && !strings.Contains(f.Text, "/var/lib/isthmus/") {
				t.Errorf("%v", f)
			}
		}
	}
}

func TestPolicyExplain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "a.yaml", "contact: opsa\nzone: Europe/Berlin\nrules:\n- {name: nights, effect: allow, projects: [p], techniques: [direct, relay], hours: [{from: \"20:00\", to: \"06:00\"}], limits: {rate: 1Gbit/s}}\n")
	write(t, dir, "b.yaml", "contact: opsb\nrules:\n- {name: no-alice, effect: deny, users: [alice], projects: [q]}\n- {name: rest, effect: allow, techniques: [relay]}\n")
	base := []string{"policy", "explain", "--policy", "a.yaml", "--from", "sitea", "--to", "siteb"}
	for _, c := range []struct {
		words  string
		status int
		want   string
	}{
		{"--user alice --project p --at 2026-11-21T21:00", 0, "sitea: rule \"nights\" allows it\nsiteb: it is not asked here\npermitted by relay\n"},
		{"--user alice --project p --at 2026-11-21T21:00", 0, "  not by reversed: the policy of sitea does not allow it (rule \"nights\"); ask opsa\n"},
		{"--user alice --project p --at 2026-11-21T21:00", 0, "within rule \"nights\" of sitea: 1Gbit/s; ask opsa\n"},
		{"--user alice --project p --at 2026-11-21T19:30:00Z", 0, "permitted"},
		{"--user alice --project p --at 2026-11-21T12:00", 1, `sitea: no rule allows it; rule "nights" would, daily 20:00-06:00 Europe/Berlin`},
		{"--user alice --project p --at 2026-11-21T21:00 --peer-policy b.yaml", 0, "permitted by relay\n"},
		{"--user alice --project p --at 2026-11-21T21:00 --peer-policy b.yaml --peer-user alice --peer-project q", 1, `siteb: rule "no-alice" denies it`},
		{"--user alice --project q --at 2026-11-21T21:00 --json", 1, `"error":"not permitted: the policy of sitea refuses links of job job, user alice (project q) with siteb`},
		{"--user alice --at noon", 2, "--at \"noon\": want a time"},
		{"--project p", 2, "policy explain: give --user"},
		{"--user a --from siteb", 2, "must differ"},
	} {
		r := isthmus(t, dir, append(base, strings.Fields(c.words)...)...)
		if r.status != c.status || !strings.Contains(r.stdout+r.stderr, c.want) {
			t.Errorf("%s: status %d, want %d\n%s%s", c.words, r.status, c.status, r.stdout, r.stderr)
		}
	}
}
