package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/internal/policy"
	"github.com/isthmus-grid/isthmus/overlay"
)

// policyCommand is "isthmus policy".
func policyCommand() *cli.Command {
	return &cli.Command{
		Name:        "policy",
		Usage:       "see what sites' policies make of a link",
		Subcommands: []*cli.Command{policyExplainCommand()},
	}
}

func policyExplainCommand() *cli.Command {
	return &cli.Command{
		Name:  "explain",
		Usage: "say which rule decides about a link, and what it allows",
		Description: "With --policy, and --peer-policy for the other site's, the files are asked and nobody else. The status is 0\n" +
			"for a link that is permitted and 1 for one that is refused.\n\n" +
			"  isthmus policy explain --policy policy.yaml --user alice --project climate --to siteb",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "policy", Usage: "`FILE` with this site's policy"},
			&cli.StringFlag{Name: "peer-policy", Usage: "`FILE` with the other site's; without it, that site permits everything"},
			&cli.StringFlag{Name: "from", Value: "here", Usage: "this `SITE`"},
			&cli.StringFlag{Name: "to", Usage: "the other `SITE`"},
			&cli.StringFlag{Name: "user", Usage: "on whose behalf: `NAME` of a grid user, or NAME@SITE without a grant"},
			&cli.StringFlag{Name: "project", Usage: "the `PROJECT` of the user's grant"},
			&cli.StringFlag{Name: "peer-user", Usage: "`NAME` at the other end, if it is another"},
			&cli.StringFlag{Name: "peer-project", Usage: "the `PROJECT` at the other end, with --peer-user"},
			&cli.StringFlag{Name: "job", Value: "job", Usage: "the job's `NAME`"},
			&cli.StringFlag{Name: "at", Usage: "`TIME` as 2026-11-21T20:00, in the policy's zone, or with a zone of its own as in RFC 3339 (default: now)"},
			&cli.BoolFlag{Name: "json", Usage: "print one object"},
		},
		Action: func(c *cli.Context) error {
			if err := words(c, "policy explain", 0); err != nil {
				return err
			}
			for _, name := range []string{"policy", "to", "user"} {
				if !c.IsSet(name) {
					return usage("policy explain: give --" + name)
				}
			}
			if c.String("from") == c.String("to") {
				return usage("policy explain: policies say nothing of links within a site; --from and --to must differ")
			}
			own, err := readSide(c.String("from"), c.String("policy"))
			if err != nil {
				return err
			}
			peer, err := readSide(c.String("to"), c.String("peer-policy"))
			if err != nil {
				return err
			}
			when, err := parseTime(c.String("at"), own.Policy.Zone.Location)
			if err != nil {
				return usage("policy explain: " + err.Error())
			}
			who := []policy.Who{{User: c.String("user"), Project: c.String("project")}}
			if c.IsSet("peer-user") {
				who = append(who, policy.Who{User: c.String("peer-user"), Project: c.String("peer-project")})
			}
			g := policy.Agree(own, peer, c.String("job"), who, when)
			if err := explain(c.App.Writer, g, c.Bool("json")); err != nil {
				return err
			}
			if g.Err() != nil {
				return cli.Exit("", 1)
			}
			return nil
		},
	}
}

// readSide reads one site's policy; no file is none.
func readSide(site, file string) (policy.Side, error) {
	side := policy.Side{Site: overlay.SiteID(site)}
	if err := overlay.CheckName("site", site); err != nil {
		return side, usage("policy explain: " + err.Error())
	}
	if file == "" {
		return side, nil
	}
	text, err := readBounded(file)
	if err != nil {
		return side, fmt.Errorf("%s: %w", file, err)
	}
	side.Policy, err = policy.Parse(file, text)
	return side, err
}

func parseTime(text string, zone *time.Location) (time.Time, error) {
	if text == "" {
		return time.Now(), nil
	}
	if when, err := time.Parse(time.RFC3339, text); err == nil {
		return when, nil
	}
	when, err := time.ParseInLocation("2006-01-02T15:04", text, zone)
	if err != nil {
		return when, fmt.Errorf("--at %q: want a time as 2026-11-21T20:00 or 2026-11-21T20:00:00+01:00", text)
	}
	return when, nil
}

// explain prints an agreement for a person, or as JSON.
func explain(w io.Writer, g policy.Agreement, asJSON bool) error {
	refusal := g.Err()
	if asJSON {
		out := struct {
			policy.Agreement
			Error string   `json:"error,omitempty"`
			Would []string `json:"would,omitempty"` // what dry-run would have refused
		}{g, "", g.Would()}
		if refusal != nil {
			out.Error = refusal.Error()
		}
		return json.NewEncoder(w).Encode(out)
	}
	for _, o := range g.Sides {
		dry := ""
		if o.DryRun {
			dry = " (dry-run: nothing is refused)"
		}
		fmt.Fprintf(w, "%s: %s%s\n", o.Site, o.Text, dry)
	}
	if refusal != nil {
		fmt.Fprintf(w, "refused: %v\n", refusal)
		return nil
	}
	var names []string
	for _, t := range g.Techniques {
		names = append(names, t.String())
	}
	fmt.Fprintf(w, "permitted by %s\n", strings.Join(names, ", "))
	for _, t := range overlay.Techniques() {
		if !slices.Contains(g.Techniques, t) {
			fmt.Fprintf(w, "  not by %v: %s\n", t, g.Without(t))
		}
	}
	if text := g.Limits.String(); text != "" {
		fmt.Fprintf(w, "within %s\n", text)
	}
	for _, text := range g.Would() {
		fmt.Fprintln(w, text)
	}
	return nil
}
