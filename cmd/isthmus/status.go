package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/broker"
	"github.com/isthmus-grid/isthmus/cmd/internal/ask"
	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/printable"
)

// adminFlags select the daemon to query, and the admin's certificate.
func adminFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "broker", Usage: "address of the broker to ask, `HOST:PORT`"},
		&cli.StringFlag{Name: "frontal", Usage: "instead of --broker: address of a frontal, `HOST:PORT`"},
		&cli.StringFlag{Name: "cert", Usage: "`FILE` with the certificate of an admin (isthmus ca issue admin NAME)"},
		&cli.StringFlag{Name: "tls-key", Usage: "`FILE` with its key"},
		&cli.StringFlag{Name: "ca", Usage: "`FILE` with the certificate of the grid's CA"},
		contextFlag(), cmdline.VerboseFlag(),
	}
}

// commandName returns the words that name a command, as in "policy explain".
func commandName(c *cli.Context) string {
	_, name, _ := strings.Cut(c.Command.HelpName, " ")
	return name
}

// askAdmin makes one call to the daemon selected by the flags.
func askAdmin(c *cli.Context, call func(context.Context, controlpb.AdminClient) error) error {
	if err := useContext(c); err != nil {
		return fmt.Errorf("%s: %w", commandName(c), err)
	}
	addr, role := c.String("broker"), control.RoleBroker
	if c.IsSet("frontal") {
		addr, role = c.String("frontal"), control.RoleFrontal
	}
	if c.IsSet("broker") && c.IsSet("frontal") {
		return cmdline.Usage(c.Command.Name + ": give either --broker or --frontal")
	}
	if addr == "" {
		return cmdline.Usage(c.Command.Name + ": give either --broker or --frontal, or log in once (isthmus login --help)")
	}
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return cmdline.Usage(fmt.Sprintf("%s: --%v %s: want HOST:PORT", c.Command.Name, role, addr))
	}
	for _, name := range certFlags {
		if !c.IsSet(name) {
			return cmdline.Usage(fmt.Sprintf("%s: give --%s: this request needs an admin's certificate (isthmus ca issue admin NAME)", c.Command.Name, name))
		}
	}
	creds, err := ask.Credentials(c, commandName(c))
	if err != nil {
		return err
	}
	return ask.Daemon(c, commandName(c), creds, control.DialConfig{Addr: addr, Role: role}, func(ctx context.Context, s *control.Session) error {
		return control.FromStatus(call(ctx, controlpb.NewAdminClient(s.Conn())))
	})
}

// statusCommand is "isthmus status".
func statusCommand() *cli.Command {
	return &cli.Command{
		Name:  "status",
		Usage: "show what a broker or frontal knows",
		Description: "A broker's status is shown as tables: sites, how each pair connects and why, proxies, jobs. With --json it is one\n" +
			"object with all counters. A frontal's status is always JSON.",
		Flags: append(adminFlags(), &cli.BoolFlag{Name: "json", Usage: "print one object instead of tables"}),
		Action: func(c *cli.Context) error {
			return askAdmin(c, func(ctx context.Context, admin controlpb.AdminClient) error {
				r, err := admin.Status(ctx, &controlpb.StatusRequest{})
				if err != nil {
					return err
				}
				if !c.IsSet("frontal") && !c.Bool("json") {
					var s broker.Status
					if err := json.Unmarshal(r.Json, &s); err != nil {
						return fmt.Errorf("this version does not understand the broker's answer (%w); use --json", err)
					}
					return cmdline.Coloured(c.App.Writer, func(w io.Writer) error { return s.WriteTable(w, time.Now()) })
				}
				var pretty bytes.Buffer
				if err := json.Indent(&pretty, r.Json, "", "  "); err != nil {
					return fmt.Errorf("the daemon's answer: %w", err)
				}
				fmt.Fprintln(c.App.Writer, pretty.String())
				return nil
			})
		},
	}
}

// planCommand is "isthmus plan": the decision for two sites.
func planCommand() *cli.Command {
	return &cli.Command{
		Name:      "plan",
		Usage:     "show how processes of one site connect to those of another, and why",
		ArgsUsage: "ASKER TARGET",
		Flags:     append(adminFlags(), &cli.BoolFlag{Name: "json", Usage: "print the plan as JSON"}),
		Action: func(c *cli.Context) error {
			if err := cmdline.Words(c, "plan", 2); err != nil {
				return err
			}
			return askAdmin(c, func(ctx context.Context, admin controlpb.AdminClient) error {
				m, err := admin.Decide(ctx, &controlpb.DecideRequest{Asker: c.Args().Get(0), Target: c.Args().Get(1)})
				if err != nil {
					return err
				}
				plan, err := control.PlanFromPB(m)
				if err != nil {
					return err
				}
				if c.Bool("json") {
					return json.NewEncoder(c.App.Writer).Encode(plan)
				}
				for i, s := range plan.Steps {
					via := ""
					if v := s.Via.String(); v != "" {
						via = " via " + v
					}
					fmt.Fprintf(c.App.Writer, "%d. %v%s: %s\n", i+1, s.Technique, via, printable.Line(s.Reason))
				}
				for _, r := range plan.Rejected {
					fmt.Fprintf(c.App.Writer, "-  %v: %s\n", r.Technique, printable.Line(r.Reason))
				}
				return nil
			})
		},
	}
}
