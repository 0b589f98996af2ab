package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/pki/ca"
	"github.com/isthmus-grid/isthmus/overlay"
)

// caIssuerCommand is "isthmus ca issuer": permission for one broker to enrol.
func caIssuerCommand(dir cli.Flag) *cli.Command {
	var online []string
	for _, r := range ca.OnlineRoles {
		online = append(online, r.String())
	}
	return &cli.Command{
		Name:  "issuer",
		Usage: "create the certificate with which a broker issues others",
		Description: "The broker then issues a certificate to any client that presents a token (isthmus ca token), while the CA's own key stays\n" +
			"offline. Give it to one broker, or to brokers that share a store: each token works once for each store.",
		Flags: []cli.Flag{dir,
			&cli.StringFlag{Name: "out", Value: ".", Usage: "`FOLDER` to write to"},
			&cli.StringFlag{Name: "roles", Value: strings.Join(online, ","), Usage: "the `ROLES` it may issue certificates for, separated by commas"},
			&cli.DurationFlag{Name: "valid", Value: 365 * 24 * time.Hour, Usage: "how long it is valid, in hours: `TIME`", DefaultText: "one year"}},
		Action: func(c *cli.Context) error {
			var roles []control.Role
			for _, text := range strings.Split(c.String("roles"), ",") {
				role, err := control.ParseRole(text)
				if err != nil {
					return cmdline.Usage("ca issuer: --roles: " + err.Error())
				}
				roles = append(roles, role)
			}
			if c.Duration("valid") <= 0 {
				return cmdline.Usage("ca issuer: --valid must be positive")
			}
			authority, err := ca.Load(c.String("dir"))
			if err != nil {
				return err
			}
			cert, key, err := authority.WriteIssuer(c.String("out"), roles, time.Now().Add(c.Duration("valid")))
			if err != nil {
				return err
			}
			fmt.Fprintf(c.App.Writer, "enrol:\n  cert: %s\n  key: %s\n", cert, key)
			return nil
		},
	}
}

// caTokenCommand is "isthmus ca token": permission to enrol.
func caTokenCommand(dir cli.Flag) *cli.Command {
	return &cli.Command{
		Name:      "token",
		Usage:     "print a token for the enrolment of a daemon, an admin or a user",
		ArgsUsage: "ROLE NAME",
		Description: "ROLE NAME is as for ca issue; \"helper SITE/*\" lets each new node of the site choose its own name. Treat the token as a\n" +
			"password until it is used or has expired. --json also prints its contents.\n\n" +
			"With --allocation the token is for the nodes of a batch job: \"helper SITE\", once for each of --nodes, until --until, for one\n" +
			"--account. The helpers' names and certificates belong to the allocation and expire with it. Besides the CA's administrator, a holder of a\n" +
			"certificate \"scheduler SITE\" may create such tokens, for that site only, without the CA:\n\n" +
			"  isthmus ca token --scheduler scheduler.pem --scheduler-key scheduler.key --ca ca.pem \\\n" +
			"    --allocation 4711 --nodes 'n[1-4]' --account alice --until @1790000000 helper sitea",
		Flags: []cli.Flag{dir,
			&cli.StringFlag{Name: "allocation", Usage: "`NUMBER` that the batch system gave the job"},
			&cli.StringFlag{Name: "nodes", Usage: "its nodes, as Slurm lists them: `LIST`, such as n[1-4],gpu3"},
			&cli.StringFlag{Name: "account", Usage: "`NAME` of the job's user at the site"},
			&cli.StringFlag{Name: "until", Usage: "the allocation's end: `TIME` as 2026-11-23T20:00:00Z, or @ and the seconds since 1970"},
			&cli.StringFlag{Name: "scheduler", Usage: "`FILE` with a scheduler's certificate, which signs instead of the CA"},
			&cli.StringFlag{Name: "scheduler-key", Usage: "`FILE` with its key"},
			&cli.StringFlag{Name: "ca", Usage: "with --scheduler: `FILE` with the certificate of the grid's CA"},
			&cli.DurationFlag{Name: "valid", Value: time.Hour, Usage: "how long the token works: `TIME`"},
			&cli.DurationFlag{Name: "cert-valid", Value: 90 * 24 * time.Hour, Usage: "how long the certificate is valid, in hours: `TIME`", DefaultText: "90 days"},
			&cli.IntFlag{Name: "uses", Value: 1, Usage: "how many times the token works"},
			&cli.StringFlag{Name: "project", Usage: "the projects of a user: `NAMES` separated by commas"},
			&cli.StringFlag{Name: "broker", Usage: "for isthmus up: the address of the broker, `HOST:PORT`"},
			&cli.StringFlag{Name: "frontal", Usage: "for isthmus up: the address of a helper's frontal, `HOST:PORT`"},
			&cli.BoolFlag{Name: "json", Usage: "print one JSON object"}},
		Action: func(c *cli.Context) error {
			if err := cmdline.Words(c, "ca token", 2); err != nil {
				return err
			}
			if c.IsSet("allocation") || c.IsSet("scheduler") {
				text, err := allocationToken(c)
				if err == nil {
					err = printToken(c, text)
				}
				return err
			}
			if c.Duration("valid") <= 0 || c.Duration("cert-valid") < time.Second {
				return cmdline.Usage("ca token: --valid and --cert-valid must be positive")
			}
			if err := cmdline.Counts(c, "ca token", "uses"); err != nil {
				return err
			}
			authority, err := ca.Load(c.String("dir"))
			if err != nil {
				return err
			}
			now := time.Now()
			t := ca.Token{
				Identity: c.Args().Get(0) + " " + c.Args().Get(1), Expires: now.Add(c.Duration("valid")).UnixMilli(),
				Valid: int64(c.Duration("cert-valid") / time.Second), Uses: c.Int("uses"),
			}
			if err := tellHost(c, &t); err != nil {
				return err
			}
			if c.IsSet("project") {
				t.Projects = strings.Split(c.String("project"), ",")
			}
			text, err := authority.Token(t, now)
			if err != nil {
				return cmdline.Usage("ca token: " + err.Error())
			}
			return printToken(c, text)
		},
	}
}

// tellHost adds to a token what its host has to know.
func tellHost(c *cli.Context, t *ca.Token) error {
	for _, name := range []string{"broker", "frontal"} {
		if c.IsSet(name) {
			if err := hostPort(c, "ca token", name); err != nil {
				return err
			}
		}
	}
	t.Broker, t.Frontal = c.String("broker"), c.String("frontal")
	return nil
}

// printToken prints a token, or with --json also its contents.
func printToken(c *cli.Context, text string) error {
	if !c.Bool("json") {
		fmt.Fprintln(c.App.Writer, text)
		return nil
	}
	t, err := ca.ReadToken(text)
	if err != nil {
		return err
	}
	return json.NewEncoder(c.App.Writer).Encode(struct {
		Token      string         `json:"token"`
		Grid       string         `json:"grid"`
		For        string         `json:"for"`
		Expires    time.Time      `json:"expires"`
		Uses       int            `json:"uses"`
		CA         string         `json:"ca"`
		Allocation *ca.Allocation `json:"allocation,omitempty"`
	}{text, t.Grid, t.Identity, t.ExpiresAt().UTC(), t.Uses, t.CA, t.Allocation})
}

// allocationToken makes the token of a batch job's allocation.
func allocationToken(c *cli.Context) (string, error) {
	for _, name := range []string{"allocation", "nodes", "account", "until"} {
		if !c.IsSet(name) {
			return "", cmdline.Usage("ca token: a token for an allocation needs --" + name)
		}
	}
	for _, name := range []string{"valid", "cert-valid", "uses", "project"} {
		if c.IsSet(name) {
			return "", cmdline.Usage("ca token: --" + name + " does not go with --allocation")
		}
	}
	ends, err := untilTime(c.String("until"))
	if err != nil {
		return "", cmdline.Usage("ca token: --until: " + err.Error())
	}
	if c.Args().Get(0) != "helper" || overlay.CheckName("site", c.Args().Get(1)) != nil {
		return "", cmdline.Usage("ca token: a token for an allocation must name: helper SITE")
	}
	site := overlay.SiteID(c.Args().Get(1))
	a := ca.Allocation{ID: c.String("allocation"), Nodes: strings.ToLower(c.String("nodes")), Account: c.String("account")}
	var text string
	if c.IsSet("scheduler") {
		text, err = byScheduler(c, site, a, ends)
	} else {
		var authority *ca.CA
		if authority, err = ca.Load(c.String("dir")); err != nil {
			return "", err
		}
		text, err = authority.Token(ca.AllocationToken(site, a, ends), time.Now())
	}
	if err != nil {
		return "", cmdline.Usage("ca token: " + err.Error())
	}
	return text, nil
}

// byScheduler signs with a site's scheduler key.
func byScheduler(c *cli.Context, site overlay.SiteID, a ca.Allocation, ends time.Time) (string, error) {
	s, err := ca.LoadScheduler(c.String("scheduler"), c.String("scheduler-key"), c.String("ca"))
	if err != nil {
		return "", err
	}
	if s.Site() != site {
		return "", fmt.Errorf("this is the scheduler of %s, which may not sign for %s", s.Site(), site)
	}
	return s.Token(a, ends, time.Now())
}

// untilTime parses a time as written by people or a batch system.
func untilTime(text string) (time.Time, error) {
	if number, ok := strings.CutPrefix(text, "@"); ok {
		s, err := strconv.ParseInt(number, 10, 64)
		if err != nil || s < 0 {
			return time.Time{}, fmt.Errorf("%q: want @ and the seconds since 1970", text)
		}
		return time.Unix(s, 0), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, fmt.Errorf("%q: want a time as 2026-11-23T20:00:00Z, or @ and the seconds since 1970", text)
	}
	return t, nil
}
