package daemon

import (
	"bytes"
	"errors"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
)

// testConfig has a key of every kind.
type testConfig struct {
	Listen  netip.AddrPort     `yaml:"listen" default:"127.0.0.1:443" help:"Address to accept on."`
	Name    string             `yaml:"name" example:"lyon: north" help:"A name."`
	Fast    bool               `yaml:"fast" help:"Whether to hurry."`
	Ports   uint16             `yaml:"ports" default:"64" min:"2" max:"1000" help:"How many ports."`
	Share   float64            `yaml:"share" default:"0.5" help:"A share."`
	Buffer  Size               `yaml:"buffer" default:"4MiB" max:"1GiB" help:"Memory for one link."`
	Choice  string             `yaml:"choice" default:"load" enum:"load,turn" help:"How to pick a proxy."`
	TLS     testTLS            `yaml:"tls" help:"Who this daemon is."`
	Allow   []netip.Prefix     `yaml:"allow" default:"10.0.0.0/8,192.168.0.0/16" help:"Networks to serve."`
	Proxies []testProxy        `yaml:"proxies" example:"[{name: paris, port: 443}]" help:"Proxies to use."`
	Rates   map[string]float64 `yaml:"rates" help:"Rate of a site."`
	Hidden  chan int           `yaml:"-"`
}

type testTLS struct {
	Cert    Path          `yaml:"cert" required:"true" path:"file" example:"/etc/isthmus/x.crt" help:"Certificate."`
	Refresh time.Duration `yaml:"refresh" default:"10m" min:"1s" help:"How often to look at it."`
}

type testProxy struct {
	Name string `yaml:"name" required:"true" help:"Its name."`
	Port int    `yaml:"port" default:"443" help:"Its port."`
}

func (p testProxy) Check() error {
	if p.Port == 80 {
		return errors.Join(Wrong("port", "80 is never a proxy"), Wrong("name", "so is the name"))
	}
	return nil
}

func (c *testConfig) Check() error {
	if c.Fast && c.Ports < 10 {
		return Wrong("ports", "fewer than 10 cannot be fast")
	}
	return nil
}

func TestParse(t *testing.T) {
	got, err := Parse[testConfig]("/etc/x/t.yaml", []byte(`
name: "7"
fast: true
share: 1
buffer: 64KiB
tls: {cert: keys/a.crt, refresh: 1h}
allow: [10.1.0.0/16]
proxies:
  - name: paris
  - {name: lyon, port: 8443}
rates: {lyon: 2.5}
log: {level: debug}
shutdown_grace: 3s
`))
	if err != nil {
		t.Fatal(err)
	}
	want := testConfig{
		Listen: netip.MustParseAddrPort("127.0.0.1:443"), Name: "7", Fast: true, Ports: 64, Share: 1,
		Buffer: 64 << 10, Choice: "load", TLS: testTLS{"/etc/x/keys/a.crt", time.Hour},
		Allow:   []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")},
		Proxies: []testProxy{{"paris", 443}, {"lyon", 8443}}, Rates: map[string]float64{"lyon": 2.5},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// Each text is the whole file except tls.cert, each want one line of the report.
func TestParseFaults(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"unknown key", "lisen: 1", `f.yaml:2:1: lisen: unknown key; did you mean listen?`},
		{"swapped letters", "nmae: a", `f.yaml:2:1: nmae: unknown key; did you mean name?`},
		{"flag spelling", "shutdown-grace: 1s", `f.yaml:2:1: shutdown-grace: unknown key; did you mean shutdown_grace?`},
		{"key of a section", "refresh: 1s", `f.yaml:2:1: refresh: unknown key; did you mean tls.refresh?`},
		{"unlike any", "log: {zzzzzz: 1}", `f.yaml:2:7: log.zzzzzz: unknown key; known here: level, format`},
		{"key in a list", "proxies: [{nam: a}]", `f.yaml:2:12: proxies[0].nam: unknown key; did you mean name?`},
		{"enum", "log: {level: inof}", `f.yaml:2:14: log.level: "inof" is not one of debug, info, warn, error; did you mean info?`},
		{"number for text", "name: 12", `f.yaml:2:7: name: the number 12 where text (put it in quotes) belongs`},
		{"text for number", "ports: many", `f.yaml:2:8: ports: the text "many" where a whole number belongs`},
		{"quoted number", `ports: "3"`, `f.yaml:2:8: ports: the text "3" where a whole number belongs`},
		{"too many bits", "ports: 70000", `f.yaml:2:8: ports: 70000 is out of range (16 bits)`},
		{"negative", "ports: -1", `f.yaml:2:8: ports: -1 is negative`},
		{"below min", "ports: 1", `f.yaml:2:8: ports: 1 is less than 2`},
		{"above max", "buffer: 2GiB", `f.yaml:2:9: buffer: 2GiB is more than 1GiB`},
		{"duration without unit", "shutdown_grace: 10", `f.yaml:2:17: shutdown_grace: "10" is not a duration; write numbers and units, as in 250ms, 10s or 1h30m`},
		{"size", "buffer: 4 MB/s", `f.yaml:2:9: buffer: "4 MB/s": "4 MB/s" is not a size`},
		{"yes", "fast: yes", `f.yaml:2:7: fast: the text "yes" where true or false belongs`},
		{"no value", "name:", `f.yaml:2:6: name: no value; remove the key to have its default`},
		{"list for a word", "name: [a]", `f.yaml:2:7: name: a list where one value belongs`},
		{"keys for a list", "allow: {a: 10.0.0.0/8}", `f.yaml:2:8: allow: keys where a list belongs`},
		{"bad word for a list of one", "allow: ten", `f.yaml:2:8: allow[0]: "ten": `},
		{"word for a section", "log: debug", `f.yaml:2:6: log: the text "debug" where keys belong`},
		{"bad element", "allow: [10.0.0.0/8, x]", `f.yaml:2:21: allow[1]: "x": netip.ParsePrefix("x"): no '/'`},
		{"twice", "name: a\nname: b", `f.yaml:3:1: name: given twice; the first is at line 2`},
		{"merge", "x: &x {name: a}\nlog:\n  <<: *x", `f.yaml:4:3: log: a key must be one word (merging with << is not supported)`},
		{"two documents", "name: a\n---\nname: b", `f.yaml: more than one document; remove what follows the second ---`},
		{"not YAML", "name: [", `f.yaml: line 2: did not find expected node content`},
		{"not YAML at all", "a: b: c", `f.yaml: line 2: mapping values are not allowed in this context`},
		{"required in a list", "proxies: [{port: 1}]", `f.yaml:2:11: proxies[0].name: needs a value`},
		{"Check of an element", "proxies: [{name: a, port: 80}]", `f.yaml:2:27: proxies[0].port: 80 is never a proxy`},
		{"Check of an element, joined", "proxies: [{name: a, port: 80}]", `f.yaml:2:18: proxies[0].name: so is the name`},
		{"Check of the whole", "fast: true\nports: 5", `f.yaml:3:8: ports: fewer than 10 cannot be fast`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse[testConfig]("f.yaml", []byte("tls: {cert: a}\n"+c.text))
			if err == nil {
				t.Fatalf("no error; want %s", c.want)
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

func TestParseReportsAllFaults(t *testing.T) {
	_, err := Parse[testConfig]("f.yaml", []byte("ports: x\nfast: 3\n"))
	var faults Faults
	if !errors.As(err, &faults) || len(faults) != 3 {
		t.Fatalf("want three faults (ports, fast, tls.cert), got %v", err)
	}
	if !strings.HasPrefix(err.Error(), "3 faults in the settings:\n  f.yaml:1:8: ports: ") {
		t.Errorf("got %v", err)
	}
}

// A file of aliases that would grow to 10^9 words must fail at once.
func TestParseBillionLaughs(t *testing.T) {
	text := "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c <= 'j'; c++ {
		text += string(c) + ": &" + string(c) + " [" + strings.Repeat("*"+string(c-1)+",", 9) + "*" + string(c-1) + "]\n"
	}
	if _, err := Parse[testConfig]("f.yaml", []byte(text+"allow: *j\n")); err == nil {
		t.Error("no error")
	}
}

func FuzzParse(f *testing.F) {
	f.Add("name: a\nproxies: [{name: b}]\nrates: {a: 1}")
	f.Add("log: &x\n  level: *x")
	f.Add("allow: [10.0.0.0/8]\nbuffer: 1e3MiB\n--- ")
	f.Fuzz(func(t *testing.T, text string) {
		Parse[testConfig]("f.yaml", []byte(text)) // must neither panic nor hang
	})
}

// The weaker source loses, for every kind of key, and faults name the source.
func TestPrecedence(t *testing.T) {
	for _, c := range []struct {
		name             string
		file, env, flag  string
		want, wantOrigin string
	}{
		{"default", "", "", "", "load", ""},
		{"file", "turn", "", "", "turn", ""},
		{"environment", "load", "turn", "", "turn", ""},
		{"flag", "load", "load", "turn", "turn", ""},
		{"bad environment", "", "trun", "", "", `environment X_CHOICE: choice: "trun" is not one of load, turn; did you mean turn?`},
		{"bad flag", "", "", "trun", "", `flag --choice: choice: "trun" is not`},
	} {
		t.Run(c.name, func(t *testing.T) {
			src := sources{file: "f.yaml", text: []byte("tls: {cert: a}\n"), prefix: "X_"}
			if c.file != "" {
				src.text = append(src.text, "choice: "+c.file...)
			}
			src.env = func(name string) (string, bool) {
				if name == "X_CHOICE" {
					return c.env, c.env != ""
				}
				return "", false
			}
			if c.flag != "" {
				src.flags = map[string][]string{"choice": {c.flag}}
			}
			var all whole[testConfig]
			faults := load(mustSchema(reflect.TypeFor[whole[testConfig]]()), reflect.ValueOf(&all).Elem(), src)
			if c.wantOrigin != "" {
				if !strings.Contains(faults.Error(), c.wantOrigin) {
					t.Errorf("got %v, want %s", faults, c.wantOrigin)
				}
				return
			}
			if len(faults) > 0 || all.Own.Choice != c.want {
				t.Errorf("got %q and %v, want %q", all.Own.Choice, faults, c.want)
			}
		})
	}
}

func TestSize(t *testing.T) {
	for text, want := range map[string]Size{
		"0": 0, "1": 1, "4096": 4096, "1kB": 1000, "1.5KiB": 1536, "4 MiB": 4 << 20, "2GB": 2e9, "1TiB": 1 << 40, "7B": 7,
	} {
		var got, again Size
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want {
			t.Errorf("%s: got %d, %v; want %d", text, got, err, want)
		}
		if err := again.UnmarshalText([]byte(got.String())); err != nil || again != got {
			t.Errorf("%s: printed as %s, which reads as %d, %v", text, got, again, err)
		}
	}
	for _, text := range []string{"", "MiB", "-1", "1e3", "NaN", "Inf", "0x10", "1_000", "1.5", "0.3KiB", "99999999TiB", "4 mib", "1.2.3"} {
		var s Size
		if err := s.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q: read as %d, want an error", text, s)
		}
	}
}

func TestSample(t *testing.T) {
	text := Sample[testConfig]("isthmus-fake")
	if flag.Lookup("update").Value.String() == "true" { // package daemontest's
		if err := os.WriteFile("testdata/sample.yaml", text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile("testdata/sample.yaml"); err != nil || !bytes.Equal(text, want) {
		t.Errorf("not testdata/sample.yaml (%v):\n%s", err, text)
	}
	got, err := Parse[testConfig]("sample.yaml", text)
	if err != nil {
		t.Fatalf("the sample is not valid: %v", err)
	}
	want := Defaults[testConfig]()
	want.TLS.Cert = "/etc/isthmus/x.crt" // required, so it is active with its example
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// Without its comment marks the sample is a valid file too, with every key in it.
func TestSampleUncommented(t *testing.T) {
	text := regexp.MustCompile(`(?m)^( *)#(\w)`).ReplaceAll(Sample[testConfig]("isthmus-fake"), []byte("$1$2"))
	got, err := Parse[testConfig]("sample.yaml", text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if got.Name != "lyon: north" || len(got.Proxies) != 1 || got.Proxies[0].Name != "paris" {
		t.Errorf("got %+v", got)
	}
}

func TestBrokenDescriptions(t *testing.T) {
	type noHelp struct {
		A int `yaml:"a"`
	}
	type noName struct {
		A int `help:"x"`
	}
	type badDefault struct {
		A int `yaml:"a" default:"x" help:"x"`
	}
	type badType struct {
		A chan int `yaml:"a" help:"x"`
	}
	type pointer struct {
		A *int `yaml:"a" help:"x"`
	}
	type clash struct {
		A int `yaml:"check" help:"x"`
	}
	type common struct {
		A int `yaml:"log" help:"x"`
	}
	for _, c := range []struct {
		name, want string
		make       func()
	}{
		{"no help", "a: no help tag", func() { Command(Spec[noHelp]{Name: "x"}) }},
		{"no name", "needs a name in its yaml tag", func() { Command(Spec[noName]{Name: "x"}) }},
		{"bad default", `default: a: "x" is not a whole number`, func() { Command(Spec[badDefault]{Name: "x"}) }},
		{"bad type", "type chan int is not supported", func() { Command(Spec[badType]{Name: "x"}) }},
		{"pointer", "type *int is not supported", func() { Command(Spec[pointer]{Name: "x"}) }},
		{"flag of the package", "two flags are called --check", func() { Command(Spec[clash]{Name: "x"}) }},
		{"key of the package", "log: two fields have this key", func() { Command(Spec[common]{Name: "x"}) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			defer func() {
				if text, _ := recover().(string); !strings.Contains(text, c.want) {
					t.Errorf("panic %q, want %q", text, c.want)
				}
			}()
			c.make()
		})
	}
}

func TestPathsMustExist(t *testing.T) {
	dir := t.TempDir()
	there := filepath.Join(dir, "a.crt")
	if err := os.WriteFile(there, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ cert, want string }{
		{"a.crt", ""},
		{there, ""},
		{"b.crt", "f.yaml:1:13: tls.cert: open " + dir + "/b.crt: no such file or directory"},
		{".", "is a folder, not a file"},
	} {
		var all whole[testConfig]
		faults := load(mustSchema(reflect.TypeFor[whole[testConfig]]()), reflect.ValueOf(&all).Elem(),
			sources{file: filepath.Join(dir, "f.yaml"), text: []byte("tls: {cert: " + c.cert + "}"), exists: true})
		if c.want == "" && len(faults) > 0 || c.want != "" && !strings.Contains(faults.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.cert, faults, c.want)
		}
	}
}

// A ready file of an earlier run is removed before the daemon starts, not when it serves: a process
// that waits for the file must not see the old one.
func TestOldReadyFileIsGoneAtStart(t *testing.T) {
	name := filepath.Join(t.TempDir(), "ready")
	if err := os.WriteFile(name, []byte("ready\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	a, err := newAnnouncer(&life{readyFile: name, hooks: newHooks(nil, nil)})
	if err != nil {
		t.Fatal(err)
	}
	defer a.close()
	if _, err := os.Stat(name); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the old file is still there: %v", err)
	}
}
