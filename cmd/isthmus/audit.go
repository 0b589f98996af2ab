package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
	"github.com/isthmus-grid/isthmus/internal/account/audit"
	"github.com/isthmus-grid/isthmus/internal/daemon"
	"github.com/isthmus-grid/isthmus/internal/printable"
)

// auditCommand is "isthmus audit".
func auditCommand() *cli.Command {
	return &cli.Command{
		Name:        "audit",
		Usage:       "verify and query the daemons' audit logs",
		Subcommands: []*cli.Command{auditVerifyCommand(), auditQueryCommand()},
	}
}

// auditVerifyCommand is "isthmus audit verify".
func auditVerifyCommand() *cli.Command {
	return &cli.Command{
		Name:      "verify",
		Usage:     "check whether records in audit logs were changed, removed or inserted: status 0 if not, 1 if so",
		ArgsUsage: "FILE|FOLDER...",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "head", Usage: "a record that the log must contain, `SEQ:HASH`, as the daemon's own log printed it; without it, a truncated log is not detected"},
			&cli.BoolFlag{Name: "json", Usage: "print one object per line and log"},
		},
		Action: func(c *cli.Context) error {
			if c.NArg() == 0 {
				return cmdline.Usage("audit verify: name the files of an audit log, or its folder")
			}
			var head audit.Head
			if c.IsSet("head") {
				var err error
				if head, err = audit.ParseHead(c.String("head")); err != nil {
					return cmdline.Usage("audit verify: --head: " + err.Error())
				}
			}
			chains, err := audit.Chains(c.Args().Slice())
			if err != nil {
				return fmt.Errorf("audit verify: %w", err)
			}
			if head.Seq != 0 && len(chains) != 1 {
				return cmdline.Usage(fmt.Sprintf("audit verify: --head is for one log, but these are %d; name the files of one log", len(chains)))
			}
			bad := 0
			for _, chain := range chains {
				report, err := audit.Verify(chain, head)
				if err != nil {
					return fmt.Errorf("audit verify: %w", err)
				}
				if len(report.Faults) > 0 {
					bad++
				}
				if err := printReport(c.App.Writer, report, c.Bool("json")); err != nil {
					return err
				}
			}
			if bad > 0 {
				return cli.Exit(fmt.Sprintf("audit verify: %d of %d logs were modified", bad, len(chains)), 1)
			}
			return nil
		},
	}
}

func printReport(w io.Writer, r audit.Report, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(r)
	}
	verdict := "whole"
	if len(r.Faults) > 0 {
		verdict = "NOT WHOLE"
	}
	fmt.Fprintf(w, "%s: %s, %d records from %d on in %d files, head %s\n", r.Name, verdict, r.Records, r.First, r.Files, r.Head)
	for _, text := range r.Faults {
		fmt.Fprintf(w, "  fault: %s\n", text)
	}
	for _, text := range r.Warnings {
		fmt.Fprintf(w, "  note: %s\n", text)
	}
	if r.Lost > 0 {
		fmt.Fprintf(w, "  note: the daemon recorded that it could not write %d records\n", r.Lost)
	}
	return nil
}

// auditQueryCommand is "isthmus audit query".
func auditQueryCommand() *cli.Command {
	return &cli.Command{
		Name:  "query",
		Usage: "show records of audit logs, or sums of them",
		Description: `Who moved 2 TB on that Tuesday, between which sites?

   isthmus audit query --on 2026-11-17 --sum bytes --by user,project,sites --over 2TB FOLDER...

A proxy counts the links through it, a frontal those that its gateway carried. Give the
broker's log as well: it knows the sites and users of a proxy's links. A link that is in
several logs is counted once. Direct connections between nodes do not pass through a
daemon: for those, the logs of frontals and helpers have what the processes report, under
rule own-word.`,
		ArgsUsage: "FILE|FOLDER...",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "from", Usage: "only records from `TIME` on: 2026-11-17, \"2026-11-17 09:30\" (of this host's time zone), or RFC 3339"},
			&cli.StringFlag{Name: "to", Usage: "only records before `TIME`"},
			&cli.StringFlag{Name: "on", Usage: "only records of one `DAY`, instead of --from and --to"},
			&cli.StringFlag{Name: "user", Usage: "only this `USER`; * and ? stand for other characters, here and below"},
			&cli.StringFlag{Name: "project", Usage: "only this `PROJECT`"},
			&cli.StringFlag{Name: "job", Usage: "only this job: its `ID` or the beginning of it"},
			&cli.StringFlag{Name: "site", Usage: "only records that involve a `SITE`"},
			&cli.StringFlag{Name: "node", Usage: "only records that involve a `NODE`"},
			&cli.StringFlag{Name: "event", Usage: "only this `EVENT`: decision, link-start, link-end, refusal, session, process, job-start, job-end, ..."},
			&cli.StringFlag{Name: "effect", Usage: "only decisions that were `EFFECT`: permitted, refused or failed"},
			&cli.StringFlag{Name: "technique", Usage: "only connections by `TECHNIQUE`"},
			&cli.StringFlag{Name: "daemon", Usage: "only records written by `DAEMON`, such as \"proxy p1\""},
			&cli.StringFlag{Name: "link", Usage: "only the connection with this `ID`"},
			&cli.StringFlag{Name: "sum", Usage: "print sums instead of records: `WHAT` is bytes (of link-end records), records or seconds"},
			&cli.StringFlag{Name: "by", Usage: "a sum for each of `KEYS`, separated by commas: " + strings.Join(audit.Keys, ", ")},
			&cli.StringFlag{Name: "over", Usage: "only sums of `SIZE` or more, such as 2TB; for records or seconds, a plain number"},
			&cli.BoolFlag{Name: "json", Usage: "print one object per line and record or sum"},
		},
		Action: func(c *cli.Context) error {
			if c.NArg() == 0 {
				return cmdline.Usage("audit query: name the files of audit logs, or their folders")
			}
			q, err := questionOf(c)
			if err != nil {
				return cmdline.Usage("audit query: " + err.Error())
			}
			chains, err := audit.Chains(c.Args().Slice())
			if err != nil {
				return fmt.Errorf("audit query: %w", err)
			}
			for _, chain := range chains {
				q.files = append(q.files, chain.Files...)
			}
			if err := q.answer(c.App.Writer, c.App.ErrWriter); err != nil {
				return fmt.Errorf("audit query: %w", err)
			}
			return nil
		},
	}
}

// question is a query and the files to search.
type question struct {
	files  []string
	filter audit.Filter
	what   string // quantity to sum; "" is the records themselves
	sum    audit.Sum
	over   float64
	json   bool
}

// measures are the quantities that can be summed.
var measures = map[string]func(*audit.Group) float64{
	"bytes":   func(g *audit.Group) float64 { return float64(g.Bytes) },
	"records": func(g *audit.Group) float64 { return float64(g.Records) },
	"seconds": func(g *audit.Group) float64 { return g.Seconds },
}

// questionOf parses the flags.
func questionOf(c *cli.Context) (q question, err error) {
	q = question{
		filter: audit.Filter{
			User: c.String("user"), Project: c.String("project"), Job: c.String("job"), Site: c.String("site"), Node: c.String("node"),
			Event: c.String("event"), Effect: c.String("effect"), Technique: c.String("technique"), Daemon: c.String("daemon"), Link: c.String("link"),
		},
		what: c.String("sum"), sum: audit.Sum{Zone: time.Local}, json: c.Bool("json"),
	}
	if err := q.filter.Check(); err != nil {
		return q, err
	}
	if q.filter.From, q.filter.To, err = timesOf(c); err != nil {
		return q, err
	}
	if q.what == "" {
		if c.IsSet("by") || c.IsSet("over") {
			return q, fmt.Errorf("--by and --over apply to sums; add --sum bytes")
		}
		return q, nil
	}
	if measures[q.what] == nil {
		return q, fmt.Errorf("--sum %s: want one of %s", q.what, strings.Join(slices.Sorted(maps.Keys(measures)), ", "))
	}
	if c.IsSet("by") {
		q.sum.By = strings.Split(c.String("by"), ",")
	}
	if err := q.sum.Check(); err != nil {
		return q, fmt.Errorf("--by: %w", err)
	}
	if c.IsSet("over") {
		var size daemon.Size
		if err := size.UnmarshalText([]byte(c.String("over"))); err != nil {
			return q, fmt.Errorf("--over: %w", err)
		}
		q.over = float64(size)
	}
	return q, nil
}

// timesOf parses --from, --to and --on.
func timesOf(c *cli.Context) (from, to time.Time, err error) {
	if c.IsSet("on") {
		if c.IsSet("from") || c.IsSet("to") {
			return from, to, fmt.Errorf("give either --on or --from and --to")
		}
		from, err = time.ParseInLocation(time.DateOnly, c.String("on"), time.Local)
		if err != nil {
			return from, to, fmt.Errorf("--on %q: want a day, as 2026-11-17", c.String("on"))
		}
		return from, from.AddDate(0, 0, 1), nil
	}
	for name, at := range map[string]*time.Time{"from": &from, "to": &to} {
		if !c.IsSet(name) {
			continue
		}
		for _, form := range []string{time.DateOnly, "2006-01-02 15:04", time.DateTime, time.RFC3339} {
			if *at, err = time.ParseInLocation(form, c.String(name), time.Local); err == nil {
				break
			}
		}
		if err != nil {
			return from, to, fmt.Errorf("--%s %q: want a time, as 2026-11-17, \"2026-11-17 09:30\" or RFC 3339", name, c.String(name))
		}
	}
	return from, to, nil
}

// answer prints the result of the query.
func (q *question) answer(out, notes io.Writer) error {
	var join audit.Join
	bad, err := audit.Read(q.files, func(r *audit.Record) error { join.Add(r); return nil })
	if err != nil {
		return err
	}
	if bad > 0 {
		fmt.Fprintf(notes, "%d lines are not records; see isthmus audit verify\n", bad)
	}
	show, done := q.records(out)
	if q.what != "" {
		show, done = q.add, func() error { return q.sums(out, notes) }
	}
	if _, err := audit.Read(q.files, func(r *audit.Record) error {
		join.Complete(r)
		if !q.filter.Match(r) {
			return nil
		}
		return show(r)
	}); err != nil {
		return err
	}
	return done()
}

// records returns a function that prints one record, and one that ends the output.
func (q *question) records(w io.Writer) (show func(*audit.Record) error, done func() error) {
	if q.json {
		e := json.NewEncoder(w)
		return func(r *audit.Record) error { return e.Encode(r) }, func() error { return nil }
	}
	t := printable.NewTable(w)
	t.Row("TIME", "DAEMON", "EVENT", "USER", "PROJECT", "JOB", "SITES", "TECHNIQUE", "BYTES", "DURATION", "RULE", "REASON")
	return func(r *audit.Record) error {
		event := string(r.Event)
		if r.Effect != "" {
			event += " " + r.Effect
		}
		bytes, lasted := "-", "-"
		if r.Event == audit.LinkEnd {
			bytes = fmt.Sprint(r.Sent + r.Received)
			lasted = time.Duration(r.Seconds * float64(time.Second)).Round(time.Millisecond).String()
		}
		reason := r.Reason
		if r.Count > 1 {
			reason = fmt.Sprintf("(%d) %s", r.Count, reason)
		}
		t.Row(r.Time.In(q.sum.Zone).Format(time.DateTime), orDash(r.Daemon), orDash(event), orDash(r.User), orDash(r.Project), orDash(shortJob(r.Job)),
			orDash(strings.Join(r.Sites, " ")), orDash(r.Technique), bytes, lasted, orDash(r.Rule), orDash(reason))
		return nil
	}, t.Flush
}

// orDash returns a text as a cell of a table.
func orDash(s string) string { return cmp.Or(s, "-") }

// shortJob returns enough of a job's id to distinguish it from others.
func shortJob(id string) string { return id[:min(len(id), 12)] }

func (q *question) add(r *audit.Record) error {
	if q.what != "bytes" || r.Event == audit.LinkEnd {
		q.sum.Add(r)
	}
	return nil
}

func (q *question) sums(w, notes io.Writer) error {
	groups := q.sum.Groups()
	of := measures[q.what]
	slices.SortStableFunc(groups, func(a, b *audit.Group) int { return int(min(max(of(b)-of(a), -1), 1)) })
	if len(q.sum.Unnamed) > 1 {
		fmt.Fprintf(notes, "several daemons have records of links without an id (%s): such a link may be counted twice; choose one daemon with --daemon\n",
			printable.Line(strings.Join(slices.Sorted(maps.Keys(q.sum.Unnamed)), ", ")))
	}
	t := printable.NewTable(w)
	if !q.json {
		var head []any
		for _, key := range q.sum.By {
			head = append(head, strings.ToUpper(key))
		}
		t.Row(append(head, "BYTES", "RECORDS", "SECONDS")...)
	}
	for _, g := range groups {
		if of(g) < q.over {
			continue
		}
		if q.json {
			if err := json.NewEncoder(w).Encode(g); err != nil {
				return err
			}
			continue
		}
		var cells []any
		for _, key := range q.sum.By {
			cells = append(cells, orDash(g.By[key]))
		}
		t.Row(append(cells, g.Bytes, g.Records, fmt.Sprintf("%.0f", g.Seconds))...)
	}
	return t.Flush()
}
