package demo

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"sort"
	"text/tabwriter"
	"time"
)

// printer writes text for people or objects for programs.
type printer struct {
	w    io.Writer
	json bool
	full bool

	printed bytes.Buffer // by the program that runs, unless full
	paths   []report     // of the last program
}

// say writes a line of text.
func (p *printer) say(format string, args ...any) {
	if !p.json {
		fmt.Fprintf(p.w, format+"\n", args...)
	}
}

// step reports that a part of the preparations is done.
func (p *printer) step(what string, since time.Time) {
	p.say("  ready: %-40s %6.2f s", what, time.Since(since).Seconds())
}

// programs begins the programs' results.
func (p *printer) programs(ranks int) {
	if !p.full {
		p.say("\nOne job after the other, each of %d ranks over both sites:", ranks)
	}
}

// title says which program starts.
func (p *printer) title(title string, ranks int) {
	switch {
	case p.full:
		p.say("\n== %s, %d ranks", title, ranks)
	case !p.json:
		fmt.Fprintf(p.w, "  %-52s ", title) // its result follows
	}
	p.printed.Reset()
}

// output returns the writer for the programs' own output.
func (p *printer) output() io.Writer {
	switch {
	case p.json:
		return io.Discard
	case p.full:
		return p.w
	}
	return &p.printed
}

// failed says why a program failed, and what it has printed.
func (p *printer) failed(err error) {
	p.say("FAILED: %v", err)
	if !p.full {
		p.say("%s", p.printed.String())
	}
}

// picture draws the last program's links, unless each was listed.
func (p *printer) picture() {
	if !p.full && !p.json {
		p.say("\nHow the last job's ranks reached each other:\n")
		for _, line := range draw(p.paths) {
			p.say("%s", line)
		}
	}
}

func (p *printer) object(v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // plain structs only
	}
	fmt.Fprintf(p.w, "%s\n", b)
}

// links shows which ranks connected, by which technique and why: each link once, as the rank that
// dialled it saw it, with the links inside a site summed up.
func (p *printer) links(program string, all []report) {
	p.paths = all
	if !p.full && !p.json {
		return
	}
	sort.Slice(all, func(i, j int) bool {
		a, b := all[i], all[j]
		return a.Rank < b.Rank || a.Rank == b.Rank && a.Peer < b.Peer
	})
	type group struct {
		path, reason string
		links        int
		setup, rtt   float64
	}
	groups := map[string]*group{}
	var order []string
	for _, r := range all {
		if !r.Dialled {
			continue
		}
		if p.json {
			p.object(struct {
				Program string `json:"program"`
				Node    string `json:"node"`
				report
			}{program, nodeOf(r.Rank), r})
			continue
		}
		path := r.path()
		key := nodeOf(r.Rank) + " -> " + nodeOf(r.Peer) + path
		g := groups[key]
		if g == nil {
			g = &group{path: path, reason: r.Reason}
			groups[key] = g
			order = append(order, key)
		}
		g.links++
		g.setup = max(g.setup, r.SetupMS)
		g.rtt = max(g.rtt, r.RTTMS)
	}
	if p.json {
		return
	}
	sort.Strings(order)
	tw := tabwriter.NewWriter(p.w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "  from -> to\tlinks\tpath\tset-up ms\tRTT ms\tbecause")
	for _, key := range order {
		g := groups[key]
		fmt.Fprintf(tw, "  %s\t%d\t%s\t%.1f\t%.1f\t%s\n", key[:len(key)-len(g.path)], g.links, g.path, g.setup, g.rtt, g.reason)
	}
	tw.Flush()
}

// traffic shows what crossed between the sites.
func (p *printer) traffic(program string, job, wan totals, elapsed time.Duration) {
	if p.json {
		p.object(struct {
			Program     string  `json:"program"`
			Seconds     float64 `json:"seconds"`
			WANMessages uint64  `json:"wan_messages"`
			WANBytes    uint64  `json:"wan_bytes"`
			WANPackets  uint64  `json:"wan_packets"`
			WireBytes   uint64  `json:"wan_wire_bytes"`
		}{program, elapsed.Seconds(), job.Messages, job.Bytes, wan.Packets, wan.Bytes})
		return
	}
	if !p.full {
		p.say("%s; %.1f s with its start", outcome(p.printed.String()), elapsed.Seconds())
		return
	}
	p.say("  between the sites: %d messages, %d bytes of the job; the sites sent %d packets, %d bytes with everything",
		job.Messages, job.Bytes, wan.Packets, wan.Bytes)
	p.say("  time: %.2f s", elapsed.Seconds())
}
