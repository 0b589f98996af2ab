package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/policy"
	"github.com/isthmus-grid/isthmus/internal/printable"
	"github.com/isthmus-grid/isthmus/overlay"
)

// policyCommand is "isthmus policy".
func policyCommand() *cli.Command {
	return &cli.Command{
		Name:        "policy",
		Usage:       "evaluate sites' policies for a link",
		Subcommands: []*cli.Command{policyExplainCommand()},
	}
}

func policyExplainCommand() *cli.Command {
	return &cli.Command{
		Name:  "explain",
		Usage: "print which rule decides about a link, and what it allows",
		Description: "With --policy, and --peer-policy for the other site's, only the files are evaluated; with --broker and an\n" +
			"admin's certificate, the policies in effect in the grid. The status is 0 for a link that is permitted and 1 for\n" +
			"one that is refused.\n\n" +
			"  isthmus policy explain --policy policy.yaml --user alice --project climate --to siteb",
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "policy", Usage: "`FILE` with this site's policy"},
			&cli.StringFlag{Name: "peer-policy", Usage: "`FILE` with the other site's policy; without it, that site's policy is not evaluated"},
			&cli.StringFlag{Name: "from", Value: "here", Usage: "this `SITE`"},
			&cli.StringFlag{Name: "to", Usage: "the other `SITE`"},
			&cli.StringFlag{Name: "user", Usage: "on whose behalf: `NAME` of a grid user, or NAME@SITE without a grant"},
			&cli.StringFlag{Name: "project", Usage: "the `PROJECT` of the user's grant"},
			&cli.StringFlag{Name: "peer-user", Usage: "`NAME` at the other end, if different"},
			&cli.StringFlag{Name: "peer-project", Usage: "the `PROJECT` at the other end, with --peer-user"},
			&cli.StringFlag{Name: "job", Value: "job", Usage: "the job's `NAME`"},
			&cli.StringFlag{Name: "at", Usage: "`TIME` as 2026-11-21T20:00, in the policy's zone, or with a zone of its own as in RFC 3339 (default: now)"},
			&cli.BoolFlag{Name: "json", Usage: "print one object"},
		}, adminFlags()...),
		Action: func(c *cli.Context) error {
			if err := cmdline.Words(c, "policy explain", 0); err != nil {
				return err
			}
			for _, name := range []string{"to", "user"} {
				if !c.IsSet(name) {
					return cmdline.Usage("policy explain: give --" + name)
				}
			}
			if !c.IsSet("policy") {
				if err := useContext(c); err != nil {
					return fmt.Errorf("policy explain: %w", err)
				}
			}
			if c.IsSet("policy") == c.IsSet("broker") {
				return cmdline.Usage("policy explain: give either --policy or --broker")
			}
			if c.String("from") == c.String("to") {
				return cmdline.Usage("policy explain: policies do not apply to links within a site; --from and --to must differ")
			}
			who := []policy.Who{{User: c.String("user"), Project: c.String("project")}}
			if c.IsSet("peer-user") {
				who = append(who, policy.Who{User: c.String("peer-user"), Project: c.String("peer-project")})
			}
			if c.IsSet("broker") {
				return explainGrid(c, who)
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
				return cmdline.Usage("policy explain: " + err.Error())
			}
			g := policy.Agree(own, peer, c.String("job"), who, when)
			return explain(c.App.Writer, g.Explain(), c.Bool("json"))
		},
	}
}

// explainGrid queries the broker for the policies in effect in the grid.
func explainGrid(c *cli.Context, who []policy.Who) error {
	req := &controlpb.DecideRequest{Asker: c.String("from"), Target: c.String("to"), Job: c.String("job")}
	for _, w := range who {
		req.Who = append(req.Who, control.PrincipalToPB(w))
	}
	when, err := parseTime(c.String("at"), time.UTC)
	if err != nil {
		return cmdline.Usage("policy explain: " + err.Error())
	}
	req.At = when.Unix()
	var plan *controlpb.Plan
	err = askAdmin(c, func(ctx context.Context, admin controlpb.AdminClient) (err error) {
		plan, err = admin.Decide(ctx, req)
		return err
	})
	if err != nil {
		return err
	}
	var e policy.Explanation
	if err := json.Unmarshal(plan.Policy, &e); err != nil {
		return fmt.Errorf("the broker's answer: %w; is it older than policies?", err)
	}
	return explain(c.App.Writer, e, c.Bool("json"))
}

// readSide reads one site's policy; without a file the site has no say.
func readSide(site, file string) (policy.Side, error) {
	side := policy.Side{Site: overlay.SiteID(site), EvaluatedElsewhere: file == ""}
	if err := overlay.CheckName("site", site); err != nil {
		return side, cmdline.Usage("policy explain: " + err.Error())
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

// explain prints an agreement as text or as JSON. A refusal is status 1.
func explain(w io.Writer, e policy.Explanation, asJSON bool) error {
	if asJSON {
		if err := json.NewEncoder(w).Encode(e); err != nil {
			return err
		}
		return refusal(e)
	}
	for _, o := range e.Sides {
		dry := ""
		if o.DryRun {
			dry = " (dry-run: nothing is refused)"
		}
		fmt.Fprintf(w, "%s: %s%s\n", o.Site, printable.Line(o.Text), dry)
	}
	if e.Error != "" {
		fmt.Fprintf(w, "refused: %s\n", printable.Line(e.Error))
		return refusal(e)
	}
	var names []string
	for _, t := range e.Techniques {
		names = append(names, t.String())
	}
	fmt.Fprintf(w, "permitted by %s\n", strings.Join(names, ", "))
	for _, t := range overlay.Techniques() {
		if why := e.Left[t.String()]; why != "" {
			fmt.Fprintf(w, "  not by %v: %s\n", t, printable.Line(why))
		}
	}
	if text := e.Within(); text != "" {
		fmt.Fprintf(w, "within %s\n", text)
	}
	for _, text := range e.WouldRefuse {
		fmt.Fprintln(w, printable.Line(text))
	}
	return nil
}

// refusal returns the exit status of an explanation.
func refusal(e policy.Explanation) error {
	if e.Error != "" {
		return cli.Exit("", 1)
	}
	return nil
}
