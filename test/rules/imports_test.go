package rules

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// A tier is a layer of the module. A package may import its own tier and the tiers below.
type tier int

const (
	vocabulary tier = iota
	frames
	internals
	parts
	messages
	services
	laboratory
	programs
)

func (t tier) String() string {
	return [...]string{"overlay", "wire", "internal/*", "collectives and link", "mpilib", "daemons and what uses mpilib", "lab and bench", "cmd and test"}[t]
}

// tiers gives the tier of each top folder. A folder that is missing here fails the test, so that
// whoever adds one must assign it a tier.
var tiers = map[string]tier{
	"overlay":  vocabulary,
	"wire":     frames,
	"internal": internals,

	"collectives": parts,
	"link":        parts,

	"mpilib": messages,

	"broker": services, "frontal": services, "proxy": services, "connhelper": services,
	"launch": services, "aiac": services, "cabi": services, "examples": services,

	"lab": laboratory, "bench": laboratory,

	"cmd": programs, "test": programs,
}

// internalTiers are the tiers within internal, the lowest first. A package belongs to the longest of these folders that it
// lies in. It may import what belongs to the same folder, and the tiers below: the folders of one tier do not know each other.
var internalTiers = [][]string{
	{"pki/grant", "pki/jobkey", "pki/revoked", "pki/ticket", "printable", "rtt", "sleep", "testkit", "testload"},
	{"carrier", "ipc", "job", "limit", "store"},
	{"daemon"},
	{"account", "policy"},
	{"control", "limit/ratelimit"},
	{"account/traffic", "nat", "pki"},
	{"support"},
}

// forTests are packages in a low tier that may import the lab: they are for tests, and packages
// that are not tests must not import them either (laboratoryBans).
var forTests = []string{"internal/nat/coordinate/coordinatetest", "internal/nat/simopen/gridtest"}

var daemons = []string{"broker", "frontal", "proxy", "connhelper"}

// A ban is an import that is forbidden in addition to the tiers.
type ban struct {
	from, to string // folders of the module, or packages outside it
	deep     bool   // whether an import of an import counts too
	why      string
}

var bans = append([]ban{
	{"collectives", "net", false, "an algorithm talks to its Comm, never to a socket"},
	{"collectives", "syscall", false, "an algorithm talks to its Comm, never to a socket"},
	{"collectives", "golang.org/x/sys", false, "an algorithm talks to its Comm, never to a socket"},
	{"collectives", "link", true, "an algorithm talks to its Comm, never to a link"},
	{"link", "collectives", true, "a link carries bytes; it knows no algorithm"},
	{"cmd/isthmus", "text/tabwriter", false, "tables with texts of others are internal/printable's"},
	{"cmd/internal", "text/tabwriter", false, "tables with texts of others are internal/printable's"},
}, slices.Concat(etcdBans(), daemonBans(), laboratoryBans())...)

// etcdBans keep etcd's client, which is large, out of the programs that nodes and gateways install.
func etcdBans() []ban {
	var all []ban
	for _, from := range []string{"isthmus", "isthmus-frontal", "isthmus-helper", "isthmus-proxy", "isthmus-starter"} {
		all = append(all, ban{"cmd/" + from, "go.etcd.io/etcd", true, "isthmus-broker alone uses an etcd"})
	}
	return all
}

// laboratoryBans keep the lab out of the product: of the programs, only isthmus-lab includes it.
// Below cmd the tiers forbid direct imports.
func laboratoryBans() []ban {
	var all []ban
	for from, floor := range tiers {
		if floor < laboratory {
			all = append(all, ban{from, "lab", true, onlyLab}, ban{from, "bench", true, onlyLab})
		}
	}
	for _, from := range []string{"isthmus", "isthmus-broker", "isthmus-frontal", "isthmus-helper", "isthmus-proxy", "isthmus-starter", "internal"} {
		all = append(all, ban{"cmd/" + from, "lab", true, onlyLab}, ban{"cmd/" + from, "bench", true, onlyLab})
	}
	return all
}

const onlyLab = "of what is no test, isthmus-lab alone has the laboratory"

// daemonBans keep one daemon from using another as a library, and mpilib from using any: it gets a
// dialer.
func daemonBans() []ban {
	var all []ban
	for _, to := range daemons {
		all = append(all, ban{"mpilib", to, true, "mpilib is given a dialer; it knows no daemon"})
		for _, from := range daemons {
			if from != to {
				all = append(all, ban{from, to, true, "daemons meet on the wire"})
			}
		}
	}
	return all
}

// A pkg is the go command's description of one package.
type pkg struct {
	ImportPath string
	Doc        string
	Name       string
	GoFiles    []string
	CgoFiles   []string
	Imports    []string
	Deps       []string
}

func TestImportsGoDown(t *testing.T) {
	said := map[string]bool{} // a package is listed once per system
	for _, p := range list(t) {
		for _, complaint := range complaints(p) {
			if !said[complaint] {
				t.Error(complaint)
			}
			said[complaint] = true
		}
	}
}

// The rules must be able to fail: each of these imports breaks one.
func TestImportRulesComplain(t *testing.T) {
	for _, c := range []struct{ from, to, want string }{
		{"wire", "internal/control", "imports go down only"},
		{"internal/control", "link", "imports go down only"},
		{"internal/control", "lab/wan", "imports go down only"},
		{"frontal", "bench", "isthmus-lab alone has the laboratory"},
		{"cmd/isthmus", "go.etcd.io/etcd/client/v3", "isthmus-broker alone uses an etcd"},
		{"cmd/isthmus-broker", "go.etcd.io/etcd/client/v3", ""},
		{"cmd/isthmus", "lab", "isthmus-lab alone has the laboratory"},
		{"cmd/internal/runmap", "bench/plot", "isthmus-lab alone has the laboratory"},
		{"cmd/isthmus-lab", "lab", ""},
		{"bench/p2p", "lab/wan/star", ""},
		{"lab", "cmd/isthmus", "imports go down only"},
		{"internal/nat/simopen/gridtest", "lab", ""},
		{"mpilib", "proxy", "mpilib is given a dialer"},
		{"mpilib/pmi", "connhelper/local", "imports go down only"},
		{"collectives", "mpilib", "imports go down only"},
		{"overlay", "wire", "imports go down only"},
		{"collectives/model", "net", "never to a socket"},
		{"collectives", "golang.org/x/sys/unix", "never to a socket"},
		{"collectives", "link", "never to a link"},
		{"broker", "proxy", "daemons meet on the wire"},
		{"attic", "wire", "stands on no floor yet"},
		{"cmd/isthmus", "mpilib", ""},
		{"mpilib", "collectives", ""},
		{"examples/is", "mpilib", ""},
		{"link", "internal/carrier", ""},
		{"internal/limit/quota", "internal/account", "internal/limit/quota imports internal/account: within internal"},
		{"internal/pki/jobkey", "internal/pki/ca", "internal/pki/jobkey imports internal/pki/ca: within internal"},
		{"internal/policy", "internal/account/audit", "internal/policy imports internal/account/audit: within internal"},
		{"internal/attic", "overlay", "internal/attic is in no tier of internal yet"},
		{"internal/pki/enrol", "internal/pki/ca", ""},
		{"internal/pki/ca", "internal/pki/revoked", ""},
		{"internal/limit/ratelimit", "internal/account/metrics", ""},
		{"collectives", "net/netip", ""},
		{"broker", "net", ""},
	} {
		to := c.to
		if _, ours := tiers[top(to)]; ours {
			to = labtest.Module + "/" + to
		}
		got := complaints(pkg{ImportPath: labtest.Module + "/" + c.from, Doc: "x", GoFiles: []string{"x.go"}, Imports: []string{to}, Deps: []string{to}})
		if text := strings.Join(got, "\n"); c.want == "" && text != "" || !strings.Contains(text, c.want) {
			t.Errorf("%s imports %s: complaint %q, want %q", c.from, c.to, text, c.want)
		}
	}
}

// The architecture has the tiers of internal as the table has them, the highest first.
func TestInternalTiersAreWritten(t *testing.T) {
	var written []string
	for _, rooms := range slices.Backward(internalTiers) {
		written = append(written, "`"+strings.Join(rooms, "`, `")+"`")
	}
	page := strings.Join(strings.Fields(labtest.ReadFile(t, "docs/architecture.md")), " ")
	if want := strings.Join(written, " > "); !strings.Contains(page, want) {
		t.Errorf("docs/architecture.md does not say: within internal, %s", want)
	}
}

func TestPackagesHaveComments(t *testing.T) {
	said := map[string]bool{}
	for _, p := range list(t) {
		if said[p.ImportPath] {
			continue
		}
		if p.Doc == "" && len(p.GoFiles)+len(p.CgoFiles) > 0 { // a folder of tests needs no comment
			said[p.ImportPath] = true
			t.Errorf("package %s has no comment; say what it is, what it refuses to know, and where its state lives", p.ImportPath)
		}
	}
}

// complaints lists the forbidden imports of p, with the reason.
func complaints(p pkg) []string {
	from, ours := folder(p.ImportPath)
	if !ours {
		return nil
	}
	if slices.Contains(forTests, from) {
		return nil
	}
	floor, known := tiers[top(from)]
	if !known {
		return []string{fmt.Sprintf("%s stands on no floor yet; add its top folder to tiers", from)}
	}
	var all []string
	for _, path := range p.Imports {
		to, ours := folder(path)
		if above, known := tiers[top(to)]; ours && known && above > floor {
			all = append(all, fmt.Sprintf("%s (%s) imports %s (%s): imports go down only", from, floor, to, above))
		}
	}
	all = append(all, internalComplaints(from, p.Imports)...)
	for _, b := range bans {
		imports := p.Imports
		if b.deep {
			imports = p.Deps
		}
		if !within(from, b.from) {
			continue
		}
		for _, path := range imports {
			to, ours := folder(path)
			if !ours {
				to = path
			}
			if forbids(b.to, to, ours) {
				all = append(all, fmt.Sprintf("%s imports %s: %s", from, to, b.why))
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// internalComplaints lists the imports that go up or aside within internal.
func internalComplaints(from string, imports []string) (all []string) {
	if !within(from, "internal") {
		return nil
	}
	room, floor := internalRoom(from)
	if room == "" {
		return []string{fmt.Sprintf("%s is in no tier of internal yet; add it to internalTiers", from)}
	}
	for _, path := range imports {
		to, _ := folder(path)
		if other, above := internalRoom(to); other != "" && other != room && above >= floor {
			all = append(all, fmt.Sprintf("%s imports %s: within internal, %s may import %v only", from, to, room, slices.Concat(internalTiers[:floor]...)))
		}
	}
	return all
}

// internalRoom returns the folder of internalTiers that a package belongs to, and its tier; "" if there is none.
func internalRoom(folder string) (room string, floor int) {
	for i, rooms := range internalTiers {
		for _, r := range rooms {
			if within(folder, "internal/"+r) && len(r) > len(room) {
				room, floor = r, i
			}
		}
	}
	return room, floor
}

// forbids reports whether a ban of the package or folder banned covers to. A folder and a foreign
// module are banned with everything below, a package of the standard library by itself: net/netip
// contains no sockets.
func forbids(banned, to string, ours bool) bool {
	if ours || strings.Contains(top(banned), ".") {
		return within(to, banned)
	}
	return to == banned
}

// folder returns a package's folder in the module, or false if it is not in it.
func folder(importPath string) (string, bool) {
	return strings.CutPrefix(importPath, labtest.Module+"/")
}

// top returns the first part of a folder.
func top(folder string) string {
	first, _, _ := strings.Cut(folder, "/")
	return first
}

// within reports whether folder is dir or below it.
func within(folder, dir string) bool {
	return folder == dir || strings.HasPrefix(folder, dir+"/")
}

// list lists every package of the module, for each system the project builds for: a file of one
// system must not hide an import.
func list(t *testing.T) []pkg {
	t.Helper()
	all, err := listed()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	if len(all) == 0 {
		t.Fatal("go list names no package")
	}
	return all
}

// listed asks the go command once. It downloads nothing: of a package that is not on this machine, the
// import is enough.
var listed = sync.OnceValues(func() (all []pkg, err error) {
	for _, goos := range []string{"linux", "darwin"} {
		cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Doc,Name,GoFiles,CgoFiles,Imports,Deps", "./...") // with the module's path it looks into other modules, too
		cmd.Dir, cmd.Env = labtest.Root, append(os.Environ(), "GOOS="+goos, "GOPROXY=off")
		var complaint bytes.Buffer
		cmd.Stderr = &complaint
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("%w\n%s", err, complaint.Bytes())
		}
		for dec := json.NewDecoder(bytes.NewReader(out)); ; {
			var p pkg
			if err := dec.Decode(&p); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, err
			}
			all = append(all, p)
		}
	}
	return all, nil
})
