package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/support/bundle"
	"github.com/isthmus-grid/isthmus/internal/testkit"
)

// bundledHost makes a folder with the files of an enrolled host whose daemons are not running:
// settings, certificates, a log. Its names are those of bundledNames.
func bundledHost(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, words := range [][]string{
		{"init", "--dir", "ca", "blueplanet"}, {"issue", "--out", "certs", "frontal", "quokka"}, {"issue", "--out", "certs", "helper", "quokka/kiwi3"},
		{"issue", "--out", "certs", "admin", "adalovelace"},
	} {
		if got := isthmus(t, dir, append([]string{"ca"}, words...)...); got.status != 0 {
			t.Fatalf("ca %q: %+v", words, got)
		}
	}
	for name, text := range map[string]string{
		"frontal.yaml": "# mallory keeps this\nsite: quokka\nbroker: 127.0.0.1:1\nlisten: 127.0.0.1:1\nprofile: {inbound: ports, ports: {first: 20000, last: 20999}, egress: any}\n" +
			"tls: {cert: certs/frontal-quokka.pem, key: certs/frontal-quokka.key, ca: certs/ca.pem}\n",
		"helper.yaml": "frontal: 127.0.0.1:1\ntls: {cert: certs/helper-quokka-kiwi3.pem, key: certs/helper-quokka-kiwi3.key, ca: certs/ca.pem}\n",
		"mallory.log": `level=INFO msg="link ended" job=tides-0123456789abcdef0123456789abcdef user=alice@quokka project=deepsea from=192.0.2.77:5000 node=kiwi3 cause="helper wombat/emu4: dial [2001:db8:7::5]:4000: refused"` + "\n" +
			"level=WARN msg=\"mail from gw.cluster-nine.example.org for alice about emu4, password=hunter2\"\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// bundledNames are the identifying names in the files of bundledHost.
var bundledNames = []string{"quokka", "kiwi3", "wombat", "emu4", "alice", "mallory", "adalovelace", "deepsea", "tides", "0123456789abcdef", "blueplanet",
	"192.0.2.77", "2001:db8:7", "cluster-nine", "example.org"}

// bundleOf are the flags for all files of a bundledHost.
var bundleOf = []string{"bundle", "--config", "frontal.yaml", "--config", "helper.yaml", "--log", "mallory.log",
	"--cert", "certs/admin-adalovelace.pem", "--tls-key", "certs/admin-adalovelace.key", "--ca", "certs/ca.pem"}

// filesIn returns the files below a folder.
func filesIn(t *testing.T, dir string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		all = append(all, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// invented matches the random part of a pseudonym, which may contain "emu4" by chance.
var invented = regexp.MustCompile(`-[a-z2-7]{8}\b`)

// namesIn returns which of the names are in a text, ignoring case.
func namesIn(text string) (all []string) {
	text = invented.ReplaceAllString(text, "-")
	for _, name := range bundledNames {
		if strings.Contains(strings.ToLower(text), name) {
			all = append(all, name)
		}
	}
	return all
}

// unpack reads a bundle; it removes the folder from names.
func unpack(t *testing.T, file string) map[string]string {
	t.Helper()
	packed, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return testkit.Unpack(t, bytes.NewReader(packed))
}

// wantBundled are files that a bundledHost's bundle contains.
var wantBundled = []string{"doctor/frontal.json", "doctor/helper.json", "log/1.log", "settings/frontal-certificate.txt", "settings/frontal.yaml",
	"settings/helper-certificate.txt", "settings/helper.yaml", "system.txt", "version.txt"}

// With --list nothing is written, not even to a name derived from --out, and the command prints
// what would be included and what could not; with --json as the manifest, all of it and nothing
// else.
func TestBundleList(t *testing.T) {
	t.Parallel()
	dir := bundledHost(t)
	before := filesIn(t, dir)
	list := isthmus(t, dir, append(bundleOf, "--list", "--out", "b.tar.gz")...)
	asJSON := isthmus(t, dir, append(bundleOf, "--list", "--json")...)
	if after := filesIn(t, dir); !slices.Equal(before, after) {
		t.Errorf("the folder has %q, and had %q", after, before)
	}
	if list.status != 0 || list.stderr != "" || strings.Contains(list.stdout, "is written") {
		t.Errorf("%+v", list)
	}
	for _, name := range wantBundled {
		if !strings.Contains("\n"+list.stdout, "\n"+name+" ") {
			t.Errorf("the list lacks %s:\n%s", name, list.stdout)
		}
	}
	if !strings.Contains(list.stdout, "1 project") || !strings.Contains(list.stdout, "without status of the ") {
		t.Errorf("the list does not say what is replaced, or what is missing:\n%s", list.stdout)
	}
	if found := namesIn(list.stdout + asJSON.stdout); len(found) > 0 {
		t.Errorf("%q in what is printed:\n%s%s", found, list.stdout, asJSON.stdout)
	}

	if asJSON.status != 0 || asJSON.stderr != "" {
		t.Errorf("%+v", asJSON)
	}
	m := manifestOf(t, asJSON.stdout)
	if m.Created.IsZero() || m.Names == "" || len(m.Gaps) == 0 {
		t.Errorf("the manifest lacks something: %+v", m)
	}
	var names []string
	for _, e := range m.Files {
		names = append(names, e.File)
		if e.From == "" || e.Bytes == 0 || e.Replaced == nil {
			t.Errorf("%+v lacks something", e)
		}
	}
	if !slices.Equal(names, wantBundled) {
		t.Errorf("files %q, want %q", names, wantBundled)
	}
}

// manifestOf parses one manifest without unknown fields.
func manifestOf(t *testing.T, text string) (m bundle.Manifest) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&m); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if d.More() {
		t.Errorf("more than one object: %s", text)
	}
	return m
}

// The file contains no names unless requested, only its owner may read it, and the output with
// --json is the manifest in it. Neither contains secrets.
func TestBundleNames(t *testing.T) {
	t.Parallel()
	dir := bundledHost(t)
	keys := map[string]bool{}
	for _, file := range []string{"certs/frontal-quokka.key", "certs/helper-quokka-kiwi3.key", "certs/admin-adalovelace.key"} {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(text) {
			if !bytes.HasPrefix(line, []byte("-----")) {
				keys[strings.TrimSpace(string(line))] = true
			}
		}
	}
	for _, tc := range []struct {
		out   string
		flags []string
		kept  bool
	}{
		{"without.tar.gz", []string{"--json"}, false},
		{"with.tar.gz", []string{"--json", "--keep-names"}, true},
	} {
		got := isthmus(t, dir, append(append(slices.Clone(bundleOf), "--out", tc.out), tc.flags...)...)
		if got.status != 0 || got.stderr != "" {
			t.Fatalf("%+v", got)
		}
		if info, err := os.Stat(filepath.Join(dir, tc.out)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", tc.out, info.Mode(), err)
		}
		texts := unpack(t, filepath.Join(dir, tc.out))
		printed, inFile := manifestOf(t, got.stdout), manifestOf(t, texts["manifest.json"])
		if a, b := asText(t, printed), asText(t, inFile); a != b {
			t.Errorf("%s: printed\n%s\nin the file\n%s", tc.out, a, b)
		}
		var files []string
		for _, e := range inFile.Files {
			files = append(files, e.File)
			if len(texts[e.File]) != e.Bytes {
				t.Errorf("%s: %s has %d bytes, the manifest says %d", tc.out, e.File, len(texts[e.File]), e.Bytes)
			}
		}
		if !slices.Equal(files, wantBundled) || len(texts) != len(files)+1 {
			t.Errorf("%s: files %q of %d, want %q", tc.out, files, len(texts)-1, wantBundled)
		}
		for name, text := range texts {
			if found := namesIn(text); len(found) > 0 && !tc.kept {
				t.Errorf("%s: %q in %s:\n%s", tc.out, found, name, text)
			}
			for key := range keys {
				if strings.Contains(text, key) {
					t.Errorf("%s: a key is in %s", tc.out, name)
				}
			}
			if strings.Contains(text, "hunter2") {
				t.Errorf("%s: a password is in %s", tc.out, name)
			}
		}
		inLog, err := os.ReadFile(filepath.Join(dir, "mallory.log"))
		if err != nil {
			t.Fatal(err)
		}
		if want := namesIn(string(inLog)); tc.kept && !slices.Equal(namesIn(texts["log/1.log"]), want) {
			t.Errorf("%s: the log must keep %q:\n%s", tc.out, want, texts["log/1.log"])
		}
	}
}

func asText(t *testing.T, m bundle.Manifest) string {
	t.Helper()
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Mistakes are reported before anything is collected, with a remedy.
func TestBundleMistakes(t *testing.T) {
	t.Parallel()
	dir := bundledHost(t)
	before := filesIn(t, dir)
	for _, tc := range []struct {
		words  []string
		status int
		says   string
	}{
		{[]string{"now"}, 2, `bundle: "now" is not expected here; see --help`},
		{[]string{"--lst"}, 2, "bundle: unknown flag --lst; did you mean --list? (--help lists the flags)"},
		{[]string{"--broker", "b:443"}, 2, "bundle: to request a status give --cert, --tls-key and --ca with an admin's certificate (isthmus ca issue admin NAME)"},
		{[]string{"--cert", "certs/admin-adalovelace.pem"}, 2, "bundle: to request a status give --cert, --tls-key and --ca with an admin's certificate (isthmus ca issue admin NAME)"},
		{[]string{"--broker", "b"}, 2, "bundle: --broker b: want HOST:PORT"},
		{[]string{"--frontal", "gw"}, 2, "bundle: --frontal gw: want HOST:PORT"},
		{[]string{"--out", "mallory.log"}, 1, "bundle: mallory.log exists; choose another name with --out"},
		{[]string{"--out", "nowhere/b.tar.gz"}, 1, "no such file or directory; choose another folder with --out FILE"},
		{append(slices.Clone(bundleOf[1:]), "--cert", "certs/none.pem"), 1, "certs/none.pem: no such file"},
	} {
		got := isthmus(t, dir, append([]string{"bundle"}, tc.words...)...)
		if got.status != tc.status || !strings.Contains(got.stderr, tc.says) || got.stdout != "" {
			t.Errorf("%q: %+v; want %d with %q", tc.words, got, tc.status, tc.says)
		}
	}
	if after := filesIn(t, dir); !slices.Equal(before, after) {
		t.Errorf("the folder has %q, and had %q", after, before)
	}

	// Missing parts of the host are not mistakes: the bundle reports them.
	got := isthmus(t, dir, "bundle", "--list", "--config", "none.yaml", "--config", "mallory.log", "--log", "none.log")
	for _, says := range []string{"without settings ", "without log ", "without status: it needs an admin's certificate"} {
		if got.status != 0 || strings.Count(got.stdout, says) == 0 {
			t.Errorf("want %q: %+v", says, got)
		}
	}
}
