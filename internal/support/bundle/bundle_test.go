package bundle

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/testkit"
)

// The names of one installation, in all the places where they occur.
const (
	statusText = `{"broker":"hub7","sites":[{"profile":{"site":"quokka","inbound":"ports","forbidden":["relay"]},"connected":true,"since":"2026-01-02T03:04:05Z","processes":2}],
		"jobs":[{"job":"tides-0123456789abcdef0123456789abcdef","processes":{"quokka":2,"wombat":1},"for":[{"user":"alice","project":"deep-sea"}]}],
		"outcomes":[{"asker":"quokka","target":"wombat","technique":"direct","reason":"dial 192.0.2.77:20001: refused by\nalice of quokka","failed":3}],
		"new_field":"somebody's word","note":"x","rtt_ms":1.25,"epoch":1234567890123456789}`
	metricsText = "# HELP isthmus_x_total Things.\n# TYPE isthmus_x_total counter\n" +
		`isthmus_x_total{from="quokka",to="wombat",technique="direct",result="failed"} 3` + "\n" +
		`isthmus_answers_total{from="cache"} 4` + "\n" + `isthmus_y{project="deep-sea",unheard="bob \"the\" builder"} 1e9` + "\n"
	settingsText = "# alice wrote this\nsite: quokka # at home\nbroker: ['gw.cluster-nine.example.org:443', 198.51.100.9:443]\nlisten: 10.20.30.40:7440\n" +
		"limits: {links: 8192}\ngrace: 60s\nprofile: {inbound: ports, egress: '443', forbidden: [relay]}\ntls: {cert: /home/alice/certs/frontal.pem, key: /etc/isthmus/frontal.key}\npasswrod: hunter2\nwhere: {alice: wombat}\n"
	logText = `time=2026-11-22T07:03:24.123Z level=INFO msg="link ended" job=tides-0123456789abcdef0123456789abcdef user=alice@quokka project=deep-sea from=10.20.30.41:5000 node=kiwi3 cause="helper wombat/emu4: dial [2001:db8:7::5]:4000: refused"` + "\n" +
		`level=WARN msg="open /home/bob/x.yaml: no such file; host gw.cluster-nine.example.org, 02:42:ac:11:00:02, kiwi3's twin KIWI3.\nkiwi3"` + "\n" +
		`level=ERROR msg="token isthmus-token-1.eyJncmlkIjoibGFiIiwiaWRlbnRpdHkiOiJoZWxw.MEUCIQDx93kdKf83kdkfKDKD93 password=hunter2 link 00112233445566778899aabbccddeeff"` + "\n" +
		`{"level":"INFO","msg":"from quokka","user":"carol","surprise":"dingo"}` + "\n" +
		"-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIHunterHunter2\n"
)

// found are texts that must not occur afterwards, in whatever case.
var found = []string{"quokka", "wombat", "alice", "deep-sea", "tides", "0123456789abcdef", "192.0.2.77", "cluster-nine", "198.51.100.9", "10.20.30", "kiwi3", "emu4",
	"2001:db8:7", "hunter2", "bob", "hub7", "02:42:ac", "eyJn", "MEUC", "MC4C", "carol", "dingo", "somebody", "001122", "at home"}

// invented is the random part of a pseudonym: by chance it may read "bob".
var invented = regexp.MustCompile(`-[a-z2-7]{8}\b`)

func files() []File {
	return []File{
		{"log/frontal.log", "the journal of quokka", Plain, []byte(logText)},
		{"settings/frontal.yaml", "/etc/isthmus/frontal.yaml", Settings, []byte(settingsText)},
		{"status/broker.json", "10.20.30.40:443", JSON, []byte(statusText)},
		{"metrics/frontal.txt", "127.0.0.1:9442", Metrics, []byte(metricsText)},
	}
}

var words = strings.Fields("site broker listen limits links grace profile inbound egress forbidden tls cert key passwrod_ where")

// open returns the texts of a bundle by name.
func open(t *testing.T, b *Bundle) map[string]string {
	t.Helper()
	var packed bytes.Buffer
	if err := b.Write(&packed); err != nil {
		t.Fatal(err)
	}
	return testkit.Unpack(t, &packed)
}

func TestNoNameIsLeft(t *testing.T) {
	b, err := Make(NewMask(words, false), time.Now(), files(), []Gap{{"status of 10.20.30.40", "frontal quokka: no answer"}})
	if err != nil {
		t.Fatal(err)
	}
	texts := open(t, b)
	for name, text := range texts {
		for _, f := range found {
			if strings.Contains(strings.ToLower(invented.ReplaceAllString(text, "-")), strings.ToLower(f)) {
				t.Errorf("%s has %q:\n%s", name, f, text)
			}
		}
	}
	// Texts that are not names are still there.
	for name, wants := range map[string][]string{
		"status/broker.json":    {`"technique": "direct"`, `"inbound": "ports"`, `"rtt_ms": 1.25`, `"since": "2026-01-02T03:04:05Z"`, `refused by\n`, "1234567890123456789", ":20001"},
		"metrics/frontal.txt":   {"# HELP isthmus_x_total Things.", `technique="direct",result="failed"} 3`, `isthmus_answers_total{from="cache"} 4`, "1e9"},
		"settings/frontal.yaml": {"links: 8192", "grace: 60s", "inbound: ports", "egress: '443'", "key: /etc/isthmus/frontal.key", "[relay]", "/home/", "/frontal.pem"},
		"log/frontal.log":       {`msg="link ended"`, "time=2026-11-22T07:03:24.123Z", ":4000: refused", "no such file", `"msg":"from `, "ipv4-private-"},
		"manifest.json":         {`"file": "status/broker.json"`, `"site": `, `"secret": `, "no answer"},
	} {
		for _, want := range wants {
			if !strings.Contains(texts[name], want) {
				t.Errorf("%s has no %q:\n%s", name, want, texts[name])
			}
		}
	}
	// The same name has the same pseudonym in every file, in texts with and without structure.
	site := regexp.MustCompile(`site-[a-z2-7]{8}`)
	first := site.FindString(texts["settings/frontal.yaml"])
	for name, text := range texts {
		if name != "manifest.json" && !strings.Contains(text, first) {
			t.Errorf("%s does not name %s:\n%s", name, first, text)
		}
	}
	again, err := Make(NewMask(words, false), time.Now(), files(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(open(t, again)["settings/frontal.yaml"], first) {
		t.Errorf("two bundles name a site alike: %s", first)
	}
}

func TestKeepNames(t *testing.T) {
	b, err := Make(NewMask(words, true), time.Now(), files(), nil)
	if err != nil {
		t.Fatal(err)
	}
	texts := open(t, b)
	for name, text := range texts {
		for _, secret := range []string{"password=hunter2", "eyJn", "MEUC", "MC4C"} {
			if strings.Contains(invented.ReplaceAllString(text, "-"), secret) {
				t.Errorf("%s has %q:\n%s", name, secret, text)
			}
		}
	}
	for name, want := range map[string]string{"status/broker.json": "quokka", "metrics/frontal.txt": "wombat", "settings/frontal.yaml": "10.20.30.40", "log/frontal.log": "alice@quokka"} {
		if !strings.Contains(texts[name], want) {
			t.Errorf("%s has no %q:\n%s", name, want, texts[name])
		}
	}
}

// Words in errors that look like names and are not.
func TestWhatStays(t *testing.T) {
	m := NewMask([]string{"limits", "links", "profile", "egress", "quota", "per_user"}, false)
	m.Learn(Site, "us")
	for _, text := range []string{
		"limits.links, profile.egress and quota.per_user", "at 12:34:56.789", "connhelper.Dial: timed out after 1.5s", "127.0.0.1:80 and [::1]:80, [::]:443",
		"/etc/isthmus/frontal.yaml", "the broker refused us-like words such as focus", "frontal.yaml:12:3", "rank 3 of 8", "github.com/x/y.(*T).Run",
	} {
		want := strings.ReplaceAll(text, "us-like", m.pseudonym(Site, "us")+"-like")
		if strings.Contains(text, "github.com/x") {
			want = "github.com/x/y.(*T).Run"
		}
		if got := m.Text(text); got != want {
			t.Errorf("%q became %q", text, got)
		}
	}
}

func TestBounds(t *testing.T) {
	b, err := Make(NewMask(nil, false), time.Now(), []File{{"log/x.log", "x", Plain, make([]byte, MaxFile+1)}, {"s.json", "x", JSON, []byte("{")}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(b.Manifest.Files) != 0 || len(b.Manifest.Gaps) != 2 {
		t.Errorf("%+v", b.Manifest)
	}
}

// Whatever the text, a learned name in it, between blanks, is removed, and JSON stays JSON.
func FuzzMask(f *testing.F) {
	for i, file := range files() {
		f.Add(i, file.Text)
	}
	f.Fuzz(func(t *testing.T, form int, text []byte) {
		if len(text) > 1<<16 {
			return
		}
		m := NewMask(words, false)
		m.Learn(Site, "quokka")
		as := Form(uint(form) % 4)
		m.LearnFrom(as, text)
		out, err := m.Mask(as, text)
		if err != nil {
			return
		}
		if as == Plain && bytes.Contains(bytes.ToLower(out), []byte(" quokka ")) {
			t.Errorf("%q became %q", text, out)
		}
		if as == JSON && !json.Valid(out) {
			t.Errorf("%q became %q", text, out)
		}
	})
}
