package profile

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// YAML returns the profile as YAML text: in one form, whatever it was read from. Read makes an equal one, except for Ignored.
// The profile must pass Check.
func (p *Profile) YAML() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	if p.Job != "" {
		line("job: %s", strconv.Quote(p.Job))
	}
	p.Program.write(line)
	line("groups:")
	for i := range p.Groups {
		p.Groups[i].write(line)
	}
	if len(p.Between) > 0 {
		line("between:")
	}
	for _, n := range p.Between {
		line("- groups: %s", p.names(n.A, n.B))
		n.write(line, "  ")
	}
	if len(p.Similar) > 0 {
		line("similar:")
	}
	for _, s := range p.Similar {
		line("- groups: %s", p.names(s.Groups...))
		line("  power: %v", s.Within)
	}
	return b.String()
}

type printer func(format string, args ...any)

func (g *Group) write(line printer) {
	line("- name: %s", strconv.Quote(g.Name))
	line("  processes: %d", g.Processes)
	if g.Cores != 1 {
		line("  cores: %d", g.Cores)
	}
	if g.Speed > 0 {
		line("  speed: %v", g.Speed)
	}
	if g.Memory > 0 {
		line("  memory: %v", g.Memory)
	}
	switch g.Sites {
	case someSites(g.Inside):
	case 0:
		line("  sites: any")
	default:
		line("  sites: %d", g.Sites)
	}
	if g.Inside.Limited() {
		line("  inside:")
		g.Inside.write(line, "    ")
	}
}

func (n Network) write(line printer, indent string) {
	if n.Latency > 0 {
		line("%slatency: %s", indent, writtenLatency(n.Latency))
	}
	if n.Bandwidth > 0 {
		line("%sbandwidth: %v", indent, n.Bandwidth)
	}
}

func (p *Profile) names(groups ...int) string {
	list := make([]string, len(groups))
	for i, g := range groups {
		list[i] = p.Groups[g].Name
	}
	return quoted(list)
}

func (p *Program) write(line printer) {
	if p.Path == "" && len(p.Args)+len(p.Env)+len(p.Inputs)+len(p.Outputs) == 0 && p.Stdin == "" && p.Stdout == "" && p.Stderr == "" {
		return
	}
	line("program:")
	for _, w := range []struct{ key, word string }{{"path", p.Path}, {"stdin", p.Stdin}, {"stdout", p.Stdout}, {"stderr", p.Stderr}} {
		if w.word != "" {
			line("  %s: %s", w.key, strconv.QuoteToASCII(w.word))
		}
	}
	for _, w := range []struct {
		key  string
		list []string
	}{{"args", p.Args}, {"inputs", p.Inputs}, {"outputs", p.Outputs}} {
		if len(w.list) > 0 {
			line("  %s: %s", w.key, quoted(w.list))
		}
	}
	if len(p.Env) > 0 {
		line("  env:")
	}
	for _, v := range p.Env {
		name, value, _ := strings.Cut(v, "=")
		line("    %s: %s", strconv.QuoteToASCII(name), strconv.QuoteToASCII(value))
	}
}

// writtenLatency formats d as parseQuantity reads it: 1500us, never 1m30s.
func writtenLatency(d time.Duration) string { return written(int64(d), latencyUnits) }

// quoted returns a YAML list of texts. YAML reads Go's ASCII-only quoting the same way.
func quoted(list []string) string {
	texts := make([]string, len(list))
	for i, text := range list {
		texts[i] = strconv.QuoteToASCII(text)
	}
	return "[" + strings.Join(texts, ", ") + "]"
}
