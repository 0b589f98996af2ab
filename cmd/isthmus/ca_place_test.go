package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/pki/ca"
)

// The shipped settings say where each daemon's certificate goes, and a token for another daemon is
// not used for them.
func TestPlaceInShippedSettings(t *testing.T) {
	for _, tc := range []struct {
		file    string
		want    place
		fits    []string
		foreign string
	}{
		{"frontal", place{daemon: "frontal", site: "sitea", broker: "broker.example.org:443"}, []string{"frontal sitea"}, "frontal siteb"},
		{"proxy", place{daemon: "proxy", broker: "broker.example.org:443"}, []string{"proxy p1"}, "frontal sitea"},
		{"helper", place{daemon: "helper"}, []string{"helper sitea/n1", "helper sitea/*"}, "user alice"},
	} {
		own := "/var/lib/isthmus/" + tc.file + "/tls/"
		tc.want.files = ca.Files{Cert: own + "cert.pem", Key: own + "key.pem", CA: own + "ca.pem"}
		got, err := placeIn("../../deploy/config/" + tc.file + ".yaml")
		if err != nil || got != tc.want {
			t.Errorf("%s: %+v, %v; want %+v", tc.file, got, err, tc.want)
		}
		for _, identity := range tc.fits {
			if err := got.accepts(identity); err != nil {
				t.Errorf("%s: %v", tc.file, err)
			}
		}
		if err := got.accepts(tc.foreign); err == nil || !strings.Contains(err.Error(), "the token is for "+tc.foreign+", but the settings are for "+tc.file) {
			t.Errorf("%s: a token for %s: %v", tc.file, tc.foreign, err)
		}
	}
	if _, err := placeIn("../../deploy/config/broker.yaml"); err == nil || !strings.Contains(err.Error(), "a broker's certificate is created offline") {
		t.Errorf("broker: %v", err)
	}
	file := filepath.Join(t.TempDir(), "frontal.yaml")
	if err := os.WriteFile(file, []byte("site: a\nlistenn: x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := placeIn(file); err == nil || !strings.Contains(err.Error(), "listenn") {
		t.Errorf("a mistake in the settings: %v", err)
	}
}

// For a user at an identity provider who names a daemon's settings, the command reports what they
// lack, and their errors.
func TestUserNamesSettings(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"token":        "x",
		"helper.yaml":  "frontal: gw:1\ntls: {cert: c, key: k, ca: nowhere.pem}\n",
		"frontal.yaml": "site: a\nbroker: b:1\nlisten: 127.0.0.1:1\nprofile: {inbound: none, egress: any}\ntls: {cert: c, key: k, ca: nowhere.pem}\n",
		"wrong.yaml":   "site: a\nlistenn: x\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		words  []string
		status int
		says   string
	}{
		{[]string{"--config", "helper.yaml"}, 2, "ca enroll: give --broker HOST:PORT"}, // a helper's settings name none
		{[]string{"--config", "helper.yaml", "--broker", "b"}, 2, "ca enroll: --broker b: want HOST:PORT"},
		{[]string{"--config", "frontal.yaml", "--broker", "b"}, 2, "ca enroll: --broker b: want HOST:PORT"},
		{[]string{"--config", "frontal.yaml"}, 1, "nowhere.pem: no such file"},
		{[]string{"--config", "frontal.yaml", "--ca", "other.pem"}, 1, "other.pem: no such file"},
		{[]string{"--config", "wrong.yaml"}, 1, "wrong.yaml:2:1: listenn: unknown key"},
		{[]string{"--config", "missing.yaml", "--broker", "b:1", "--ca", "ca.pem"}, 1, "missing.yaml: no such file"},
	} {
		got := isthmus(t, dir, append([]string{"ca", "enroll", "--oidc-token", "token"}, tc.words...)...)
		if got.status != tc.status || !strings.Contains(got.stderr, tc.says) {
			t.Errorf("%q: status %d, %q; want %d with %q", tc.words, got.status, got.stderr, tc.status, tc.says)
		}
	}
}
