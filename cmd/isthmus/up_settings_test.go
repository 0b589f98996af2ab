package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

func TestSettle(t *testing.T) {
	wanted := []setting{{"site", "lyon"}, {"broker", "['b.example:443']"}}
	for _, tc := range []struct{ name, before, after, fault string }{
		{name: "nothing", before: "", after: "site: lyon\nbroker: ['b.example:443']\n"},
		{name: "the package's", before: "# x\nsite: sitea # which\n\nbroker: ['broker.example.org:443']\nlisten: 10.1.0.1:7440\n", after: "# x\nsite: lyon\n\nbroker: ['b.example:443']\nlisten: 10.1.0.1:7440\n"},
		{name: "as wanted", before: "site: lyon   # ours\nbroker: ['b.example:443']\n", after: "site: lyon   # ours\nbroker: ['b.example:443']\n"},
		{name: "empty", before: "site:\n#broker: ['x:1']\n", after: "site: lyon\n#broker: ['x:1']\nbroker: ['b.example:443']\n"},
		{name: "below another key", before: "a:\n  site: x\n", after: "a:\n  site: x\nsite: lyon\nbroker: ['b.example:443']\n"},
		{name: "somebody's", before: "site: paris\n", fault: "site is paris, and the token or the command line says lyon"},
	} {
		after, err := settle(tc.before, wanted)
		if after != tc.after || (err == nil) != (tc.fault == "") || err != nil && err.Error() != tc.fault {
			t.Errorf("%s: %q, %v; want %q, %s", tc.name, after, err, tc.after, tc.fault)
		}
	}
}

// What counts as the packages' is what their settings have.
func TestPackagedSettings(t *testing.T) {
	found := map[string]bool{}
	for _, role := range []string{"frontal", "helper", "proxy"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "deploy", "config", role+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		for key, value := range packaged {
			if m := regexp.MustCompile(`(?m)^` + key + `: (.*)$`).FindSubmatch(text); m != nil {
				if found[key] = true; string(m[1]) != value {
					t.Errorf("%s.yaml: %s is %s, want %s", role, key, m[1], value)
				}
			}
		}
	}
	if len(found) != len(packaged) {
		t.Errorf("the packages have only %v of %v", found, packaged)
	}
}

func TestCheckAddresses(t *testing.T) {
	for value, want := range map[string]bool{
		"['b.example:443']": true, "['[2001:db8::1]:443']": true, "10.1.0.1:7440": true,
		"b.example": false, "['b.example:443', 'x:1']": false, "b:1\nunsafe: true": false, "['a b:1']": false, "['x:1'] #:1": false,
	} {
		if err := checkAddresses([]setting{{"broker", value}}); (err == nil) != want {
			t.Errorf("%q: %v", value, err)
		}
	}
}
