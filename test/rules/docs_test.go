package rules

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/internal/pki/ticket"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
	"github.com/isthmus-grid/isthmus/wire"
)

// A constant of package wire, as its source has it.
type constant struct {
	name, value string // "TypeIntro", "0x01"
	layout      string // the comment on its line
}

// constants returns those whose value is a plain number, or Type(number).
func constants(t *testing.T, file string) []constant {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(labtest.Root, file), nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	var all []constant
	for _, decl := range f.Decls {
		gen, ok := decl.(*ast.GenDecl)
		if !ok || gen.Tok != token.CONST {
			continue
		}
		for _, spec := range gen.Specs {
			v := spec.(*ast.ValueSpec)
			if len(v.Values) != 1 {
				continue
			}
			value := v.Values[0]
			if call, ok := value.(*ast.CallExpr); ok && len(call.Args) == 1 {
				value = call.Args[0]
			}
			if lit, ok := value.(*ast.BasicLit); ok {
				all = append(all, constant{v.Names[0].Name, lit.Value, strings.TrimSpace(v.Comment.Text())})
			}
		}
	}
	return all
}

// bare returns a layout without units and remarks.
func bare(layout string) string {
	layout, _, _ = strings.Cut(layout, " ;")
	return regexp.MustCompile(`\([^)]*\)`).ReplaceAllString(layout, "")
}

// TestProtocolPageIsComplete: the page, as the basis of a second implementation, has every frame
// with its layout and an example, every code, every call and every label.
func TestProtocolPageIsComplete(t *testing.T) {
	page := labtest.ReadFile(t, "docs/protocol.md")
	layouts := map[string]string{} // by "TypeIntro 0x01"
	for _, m := range regexp.MustCompile("(?m)^\\*\\*(Type\\w+ 0x\\w+)\\*\\* `([^`]*)`").FindAllStringSubmatch(page, -1) {
		layouts[m[1]] = bare(m[2])
	}
	frames := 0
	for _, c := range constants(t, "wire/wire.go") {
		if !strings.HasPrefix(c.name, "Type") {
			continue
		}
		frames++
		if got, ok := layouts[c.name+" "+c.value]; !ok || got != bare(c.layout) {
			t.Errorf("frame %s %s: the page has layout %q, wire %q", c.name, c.value, got, bare(c.layout))
		}
	}
	rows := 0
	for file, prefix := range map[string]string{"wire/code.go": "Code", "wire/preamble.go": "Intro", "wire/message.go": "Envelope"} {
		for _, c := range constants(t, file) {
			if !strings.HasPrefix(c.name, prefix) || c.name == "EnvelopeLen" {
				continue
			}
			rows++
			if row := "| " + c.value + " | " + c.name + " |"; !strings.Contains(page, row) {
				t.Errorf("%s: the page has no row %q", c.name, row)
			}
		}
	}
	squeezed := strings.NewReplacer(" ", "", "\n", "").Replace(page)
	examples := 0
	for line := range strings.Lines(labtest.ReadFile(t, "wire/testdata/golden.hex")) {
		fields := strings.Fields(line)
		examples++
		if !strings.Contains(squeezed, fields[len(fields)-1]) {
			t.Errorf("the page has no example of %s, or not that of wire/testdata/golden.hex", strings.Join(fields[:len(fields)-1], " "))
		}
	}
	calls := 0
	services := controlpb.File_control_proto.Services()
	for i := range services.Len() {
		for j := range services.Get(i).Methods().Len() {
			calls++
			if name := string(services.Get(i).Name() + "." + services.Get(i).Methods().Get(j).Name()); !strings.Contains(page, "`"+name+"`") {
				t.Errorf("the page does not name call %s", name)
			}
		}
	}
	labels := 0
	for _, file := range []string{"internal/pki/jobkey/jobkey.go", "link/establish.go"} {
		for _, label := range regexp.MustCompile(`"(isthmus v1 [^"]+)"`).FindAllStringSubmatch(labtest.ReadFile(t, file), -1) {
			labels++
			if !strings.Contains(page, label[1]) {
				t.Errorf("the page does not name label %q", label[1])
			}
		}
	}
	// The sources must have been parsed, or the checks above checked nothing.
	if frames < 14 || rows < 20 || examples < 14 || calls < 12 || labels < 3 {
		t.Errorf("found only %d frames, %d rows, %d examples, %d calls, %d labels", frames, rows, examples, calls, labels)
	}
}

// TestProtocolPageComputesRight: the page's worked examples agree with the code's results for the
// same input.
func TestProtocolPageComputesRight(t *testing.T) {
	page := labtest.ReadFile(t, "docs/protocol.md")
	var secret [32]byte
	for i := range secret {
		secret[i] = byte(i)
	}
	text := "demo:" + base64.RawURLEncoding.EncodeToString(secret[:])
	key, err := jobkey.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	frame, err := wire.Read(hex.NewDecoder(strings.NewReader(golden(t, "ticket"))))
	if err != nil {
		t.Fatal(err)
	}
	issued := ticket.Issue(ticket.Key(secret), *frame.(*wire.Ticket))
	for _, want := range []string{
		"text   " + text,
		fmt.Sprintf("auth   %x", key.Auth()),
		fmt.Sprintf("links  %x", key.Links()),
		fmt.Sprintf("public %x", key.Auth().Public()),
		"id     " + string(key.ID()),
		fmt.Sprintf("%x", issued.MAC),
		fmt.Sprintf("%x", wire.Envelope{Kind: wire.EnvelopeEager, Context: 2, Tag: 7, Length: 3}.Append(nil)),
	} {
		if !strings.Contains(page, "    "+want+"\n") {
			t.Errorf("the page has no line %q", want)
		}
	}
	for field, values := range map[string][]fmt.Stringer{
		"`inbound`":                      {overlay.InboundNone, overlay.InboundPorts, overlay.InboundOpen},
		"`filter`":                       {overlay.FilterNone, overlay.FilterStateless, overlay.FilterStateful, overlay.FilterStrict},
		"`refusal`":                      {overlay.RefuseDrop, overlay.RefuseReset},
		"`nat_mapping`, `nat_filtering`": {overlay.NATNone, overlay.EndpointIndependent, overlay.AddressDependent, overlay.AddressAndPortDependent},
		"`egress`":                       {overlay.EgressAny, overlay.Egress443, overlay.EgressHTTPProxy, overlay.EgressNone, overlay.EgressTLS443, overlay.EgressHTTPProxyTLS},
	} {
		var row []string
		for i, v := range values {
			row = append(row, fmt.Sprintf("%d %v", i, v))
		}
		if want := "| " + field + " | " + strings.Join(row, ", ") + " |"; !strings.Contains(page, want) {
			t.Errorf("the page has no row %q", want)
		}
	}
}

// golden returns the hexadecimal example of a frame.
func golden(t *testing.T, name string) string {
	t.Helper()
	for line := range strings.Lines(labtest.ReadFile(t, "wire/testdata/golden.hex")) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(rest)
		}
	}
	t.Fatalf("no golden %s", name)
	return ""
}

// pages returns every page of the documentation.
func pages(t *testing.T) []string {
	t.Helper()
	all := []string{"README.md", "CONTRIBUTING.md"}
	for _, pattern := range []string{"docs/*.md", "docs/decisions/*.md"} {
		found, err := filepath.Glob(filepath.Join(labtest.Root, pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: no pages (%v)", pattern, err)
		}
		for _, name := range found {
			all = append(all, strings.TrimPrefix(filepath.ToSlash(name), labtest.Root+"/"))
		}
	}
	return all
}

func TestLinksInPagesLeadSomewhere(t *testing.T) {
	links := 0
	for _, name := range pages(t) {
		for _, m := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(labtest.ReadFile(t, name), -1) {
			target, _, _ := strings.Cut(m[1], "#")
			if target == "" || strings.Contains(target, "://") {
				continue
			}
			links++
			if _, err := os.Stat(filepath.Join(labtest.Root, filepath.Dir(name), target)); err != nil {
				t.Errorf("%s: link %s: %v", name, m[1], err)
			}
		}
	}
	if links == 0 {
		t.Error("no links found")
	}
}

// TestFunctionsInPagesAreThere: where a page says that a function is in a file, it is.
func TestFunctionsInPagesAreThere(t *testing.T) {
	named := 0
	for _, name := range pages(t) {
		page := strings.Join(strings.Fields(labtest.ReadFile(t, name)), " ")
		for _, m := range regexp.MustCompile("`(\\w+)`(?: and `(\\w+)`)? in \\[[^]]*\\]\\(([^)]+\\.go)\\)").FindAllStringSubmatch(page, -1) {
			text := labtest.ReadFile(t, filepath.Join(filepath.Dir(name), m[3]))
			for _, f := range m[1:3] {
				if named++; f != "" && !regexp.MustCompile(`(?m)^func (?:\([^)]*\) )?`+f+`\b`).MatchString(text) {
					t.Errorf("%s: %s declares no function %s", name, m[3], f)
				}
			}
		}
	}
	if named == 0 {
		t.Error("no functions found")
	}
}

// TestDependenciesHaveReasons: every module that go.mod requires for our own code has its path in a
// decision's page.
func TestDependenciesHaveReasons(t *testing.T) {
	var reasons strings.Builder
	for _, name := range pages(t) {
		if strings.HasPrefix(name, "docs/decisions/") {
			reasons.WriteString(labtest.ReadFile(t, name))
		}
	}
	for line := range strings.Lines(labtest.ReadFile(t, "go.mod")) {
		fields := strings.Fields(line)
		if !strings.HasPrefix(line, "\t") || strings.Contains(line, "// indirect") || len(fields) < 2 {
			continue // a tool, or an indirect dependency
		}
		if module := fields[0]; !strings.Contains(reasons.String(), "`"+module+"`") {
			t.Errorf("%s: no page in docs/decisions says why", module)
		}
	}
}
