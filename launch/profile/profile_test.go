package profile

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/testkit"
)

// TestGolden reads every profile of testdata and compares the result, written as YAML, and the
// faults.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.[xy]*ml")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			p, err := Read(filepath.Base(file), text)
			base := strings.TrimSuffix(file, filepath.Ext(file))
			if err != nil {
				if !errors.As(err, new(Faults)) {
					t.Errorf("the error is %T, not Faults", err)
				}
				testkit.Golden(t, base+strings.Replace(filepath.Ext(file), ".", "-", 1)+".faults", err.Error()+"\n")
				return
			}
			testkit.Golden(t, base+".golden", p.YAML()+comments(p.Ignored))
			if err := p.Check(); err != nil {
				t.Errorf("what Read takes, Check refuses: %v", err)
			}
		})
	}
}

func comments(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return "# " + strings.Join(lines, "\n# ") + "\n"
}

// The figure's excerpt is read as printed: its two numbers without units are kbit/s and ms, and
// what it leaves out are the only faults.
func TestPaperExcerpt(t *testing.T) {
	p, err := ReadFile("testdata/fig3.xml")
	var faults Faults
	if !errors.As(err, &faults) || len(faults) != 2 {
		t.Fatalf("faults: %v", err)
	}
	want := []Group{{Name: "central_master", Cores: 1, Inside: Network{Latency: 5 * time.Millisecond}}}
	if p.Job != "ray2mesh-job" || !reflect.DeepEqual(p.Groups, want) {
		t.Errorf("read %q, %+v", p.Job, p.Groups)
	}

	p, err = ReadFile("testdata/complete.xml")
	if err != nil {
		t.Fatal(err)
	}
	between := []Between{{A: 0, B: 1, Network: Network{Latency: 20 * time.Millisecond, Bandwidth: 5120e3}}}
	if !reflect.DeepEqual(p.Between, between) {
		t.Errorf("between: %+v", p.Between)
	}
}

func TestYAMLOfXMLIsEqual(t *testing.T) {
	p, err := ReadFile("testdata/complete.xml")
	if err != nil {
		t.Fatal(err)
	}
	again(t, p)
}

// again checks that a written profile reads as the same profile.
func again(t *testing.T, p *Profile) {
	t.Helper()
	q, err := Read("again.yaml", []byte(p.YAML()))
	if err != nil {
		t.Fatalf("%v\n%s", err, p.YAML())
	}
	q.Ignored = p.Ignored
	if !reflect.DeepEqual(p, q) {
		t.Errorf("got %+v\nof\n%s\nwant %+v", q, p.YAML(), p)
	}
}

func TestCheckMade(t *testing.T) {
	good := func() *Profile {
		return &Profile{
			Groups:  []Group{{Name: "a", Processes: 1, Cores: 1}, {Name: "b", Processes: 1, Cores: 1}},
			Between: []Between{{A: 0, B: 1, Network: Network{Latency: 1}}},
			Similar: []Similar{{Groups: []int{0, 1}, Within: 5}},
		}
	}
	if err := good().Check(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		spoil func(*Profile)
		key   string
	}{
		"no groups":     {func(p *Profile) { *p = Profile{} }, "groups"},
		"many groups":   {func(p *Profile) { p.Groups = make([]Group, MaxGroups+1) }, "groups"},
		"job":           {func(p *Profile) { p.Job = "a b" }, "job"},
		"twin":          {func(p *Profile) { p.Groups[1].Name = "a" }, "groups[1].name"},
		"no processes":  {func(p *Profile) { p.Groups[1].Processes = 0 }, "groups[1].processes"},
		"too many":      {func(p *Profile) { p.Groups[1].Processes = MaxProcesses }, "groups"},
		"no cores":      {func(p *Profile) { p.Groups[0].Cores = 0 }, "groups[0].cores"},
		"sites":         {func(p *Profile) { p.Groups[0].Sites = -1 }, "groups[0].sites"},
		"memory":        {func(p *Profile) { p.Groups[0].Memory = -1 }, "groups[0]"},
		"latency":       {func(p *Profile) { p.Groups[0].Inside.Latency = -1 }, "groups[0].inside"},
		"order":         {func(p *Profile) { p.Between[0].A, p.Between[0].B = 1, 0 }, "between[0]"},
		"range":         {func(p *Profile) { p.Between[0].B = 2 }, "between[0]"},
		"no limit":      {func(p *Profile) { p.Between[0].Network = Network{} }, "between[0]"},
		"pair twice":    {func(p *Profile) { p.Between = append(p.Between, p.Between[0]) }, "between[1]"},
		"similar order": {func(p *Profile) { p.Similar[0].Groups = []int{1, 0} }, "similar[0].groups"},
		"similar twice": {func(p *Profile) { p.Similar[0].Groups = []int{1, 1} }, "similar[0].groups"},
		"similar range": {func(p *Profile) { p.Similar[0].Groups = []int{1, 2} }, "similar[0].groups"},
		"power":         {func(p *Profile) { p.Similar[0].Within = 101 }, "similar[0].power"},
		"env":           {func(p *Profile) { p.Program.Env = []string{"A=1", "A=2"} }, "program.env"},
		"env form":      {func(p *Profile) { p.Program.Env = []string{"A"} }, "program.env"},
	} {
		p := good()
		c.spoil(p)
		var faults Faults
		if err := p.Check(); !errors.As(err, &faults) || faults[0].Key != c.key {
			t.Errorf("%s: %v, want a fault of %s", name, err, c.key)
		}
	}
}

func TestQuantities(t *testing.T) {
	for text, want := range map[string]Rate{"1bit/s": 1, "100Mbit/s": 100e6, "1.5 Gbit/s": 1500e6, "125MB/s": 1e9, "1KiB/s": 8192, "5120kbit/s": 5120e3} {
		if got, err := ParseRate(text); err != nil || got != want {
			t.Errorf("%s: %d, %v; want %d", text, got, err, want)
		}
	}
	for text, part := range map[string]string{
		"100": "has no unit", "100Mb/s": "unknown unit", "1e3bit/s": "unknown unit", "-1bit/s": "no bandwidth",
		"0Mbit/s": "no demand", "": "no bandwidth", "NaNbit/s": "no bandwidth", "99999999999Gbit/s": "too large", "1.2.3bit/s": "no bandwidth",
	} {
		if got, err := ParseRate(text); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %d, %v; want an error with %q", text, got, err, part)
		}
	}
	if d, err := ParseLatency("1.5ms"); err != nil || d != 1500*time.Microsecond {
		t.Errorf("1.5ms: %v, %v", d, err)
	}
	if b, err := ParseBytes("1.5GiB"); err != nil || b != 3<<29 || b.String() != "1536MiB" {
		t.Errorf("1.5GiB: %v, %v", b, err)
	}
	if f, err := ParseFrequency("2.2GHz"); err != nil || f != 2200e6 || f.String() != "2200MHz" {
		t.Errorf("2.2GHz: %v, %v", f, err)
	}
}

// Whatever the text, Read returns without a panic, and an accepted profile survives being written
// and read.
func FuzzRead(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.[xy]*ml")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte("groups: &a [*a]\n"))
	f.Add([]byte("groups:\n- {name: a, processes: 3, inside: {latency: 1us}}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := Read("fuzz", text)
		if err == nil {
			again(t, p)
		} else if err.Error() == "" || len(err.(Faults)) > maxFaults {
			t.Errorf("faults: %q", err)
		}
	})
}
