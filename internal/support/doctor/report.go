package doctor

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
)

// Report is the outcome of a run, for people and as JSON.
type Report struct {
	Self      string    `json:"self"` // the daemon whose settings were used
	Class     Class     `json:"class"`
	Exit      int       `json:"exit"`
	TookMS    int64     `json:"took_ms"`
	Findings  []Finding `json:"findings"`
	Firewall  []Rule    `json:"firewall,omitempty"`
	Elsewhere []string  `json:"elsewhere,omitempty"` // what can only be tested from other hosts
}

// Conclude diagnoses observations and summarises them.
func Conclude(o Observations) Report {
	r := Report{Self: o.Self, Findings: Diagnose(o), TookMS: o.Took.Milliseconds(), Firewall: FirewallRequest(o), Elsewhere: otherSites(o)}
	r.Class = Overall(r.Findings)
	r.Exit = 0
	for _, f := range r.Findings {
		if f.Status == Failed {
			r.Exit = r.Class.ExitCode()
		}
	}
	return r
}

// otherSites lists what this host cannot observe.
func otherSites(o Observations) []string {
	if o.Pair == nil {
		return nil
	}
	var all []string
	for _, site := range []string{o.Pair.A, o.Pair.B} {
		who := o.Self
		if strings.HasSuffix(who, " "+site) || strings.Contains(who, " "+site+"/") {
			continue
		}
		all = append(all,
			fmt.Sprintf("on the gateway of %s: isthmus doctor --config FRONTAL.yaml (its path to the broker and to the proxies)", site),
			fmt.Sprintf("on a node of %s: isthmus doctor --config HELPER.yaml (its path to its gateway, and what reaches it from outside)", site))
	}
	return all
}

var marks = map[Status]string{Passed: "ok  ", Failed: "FAIL", Warning: "note", NotChecked: "-   "}

// Print writes the report for people. With firewall it adds the rules to request.
func (r Report) Print(w io.Writer, firewall bool) error {
	var b strings.Builder
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "%s  %s: %s\n", marks[f.Status], f.Layer, f.Target)
		line := func(what, text string) {
			if text != "" {
				fmt.Fprintf(&b, "      %-9s %s\n", what, strings.ReplaceAll(text, "\n", "\n"+strings.Repeat(" ", 16)))
			}
		}
		line("seen:", f.Evidence)
		if f.Status == Passed {
			continue
		}
		line("means:", f.Meaning)
		line("where:", f.Device)
		line("do:", f.Fix)
	}
	if len(r.Elsewhere) > 0 {
		fmt.Fprintf(&b, "\nTo be tested elsewhere:\n  %s\n", strings.Join(r.Elsewhere, "\n  "))
	}
	if firewall {
		r.printRules(&b)
	}
	who := ""
	if r.Self != "" {
		who = r.Self + ": "
	}
	fmt.Fprintf(&b, "\n%s%s: %s (%v)\n", who, r.Class, r.Class.Describe(), (time.Duration(r.TookMS) * time.Millisecond).Round(10*time.Millisecond))
	_, err := io.WriteString(w, b.String())
	return err
}

// printRules writes the rules: those to request apart from those that pass.
func (r Report) printRules(b *strings.Builder) {
	for _, part := range []struct {
		title string
		has   func(Rule) bool
	}{
		{"Please open (nothing works without)", func(r Rule) bool { return r.Required && r.Seen != passes }},
		{"Please open if you can (direct links in place of relayed ones)", func(r Rule) bool { return !r.Required && r.Seen != passes }},
		{"Open already, please keep", func(r Rule) bool { return r.Seen == passes }},
	} {
		first := true
		for _, rule := range r.Firewall {
			if !part.has(rule) {
				continue
			}
			if first {
				fmt.Fprintf(b, "\n%s:\n", part.title)
			}
			first = false
			fmt.Fprintf(b, "  %s %s, from %s to %s, port %s: %s [%s]\n", rule.Protocol, rule.Direction, rule.Source, rule.Destination, rule.Port, rule.Reason, rule.Seen)
		}
	}
}

// JSON writes the report as one object on one line.
func (r Report) JSON(w io.Writer) error { return json.NewEncoder(w).Encode(r) }
