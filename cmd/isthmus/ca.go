package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/pki/ca"
)

// caCommand is "isthmus ca": the grid's certificate authority in a folder.
func caCommand() *cli.Command {
	dir := &cli.StringFlag{Name: "dir", Value: "ca", Usage: "the CA's `FOLDER`"}
	return &cli.Command{
		Name:  "ca",
		Usage: "create the grid's certificate authority and its certificates",
		Subcommands: []*cli.Command{
			{
				Name:      "init",
				Usage:     "make a new CA for the grid NAME",
				ArgsUsage: "NAME",
				Flags: []cli.Flag{dir,
					&cli.DurationFlag{Name: "valid", Value: 10 * 365 * 24 * time.Hour, Usage: "how long the CA is valid, in hours: `TIME`", DefaultText: "ten years"}},
				Action: func(c *cli.Context) error {
					if err := cmdline.Words(c, "ca init", 1); err != nil {
						return err
					}
					if _, err := ca.Create(c.String("dir"), c.Args().First(), c.Duration("valid")); err != nil {
						return err
					}
					fmt.Fprintf(c.App.Writer, "made %s/%s (give it to every daemon) and %[1]s/%[3]s (keep it)\n", c.String("dir"), ca.CertFile, ca.KeyFile)
					return nil
				},
			},
			{
				Name:  "issue",
				Usage: "issue a daemon's, an admin's or a user's certificate",
				Description: "ROLE NAME is one of\n  broker NAME\n  frontal SITE\n  proxy NAME\n  helper NODE@SITE\n  admin NAME\n  user NAME\n\n" +
					"The certificate, its key and the CA's certificate are written into the folder --out.",
				ArgsUsage: "ROLE NAME",
				Flags: []cli.Flag{dir,
					&cli.StringFlag{Name: "out", Value: ".", Usage: "`FOLDER` to write to"},
					&cli.StringFlag{Name: "project", Usage: "the projects of a user: `NAMES` separated by commas"},
					&cli.DurationFlag{Name: "valid", Value: 90 * 24 * time.Hour, Usage: "how long the certificate is valid, in hours: `TIME`", DefaultText: "90 days"}},
				Action: func(c *cli.Context) error {
					if err := cmdline.Words(c, "ca issue", 2); err != nil {
						return err
					}
					id, projects, err := holder(c, "ca issue", c.Args().Get(0), c.Args().Get(1))
					if err != nil {
						return err
					}
					authority, err := ca.Load(c.String("dir"))
					if err != nil {
						return err
					}
					files, err := authority.Write(c.String("out"), id, time.Now().Add(c.Duration("valid")), projects...)
					if err != nil {
						return err
					}
					fmt.Fprintf(c.App.Writer, "tls:\n  cert: %s\n  key: %s\n  ca: %s\n", files.Cert, files.Key, files.CA)
					return nil
				},
			},
			caRequestCommand(), caSignCommand(dir), caIssuerCommand(dir), caTokenCommand(dir), caEnrollCommand(), caRenewCommand(), caRevokeCommand(dir),
		},
	}
}

// holder parses the identity that a certificate is for, and checks the flags --project and --valid
// of the command called what.
func holder(c *cli.Context, what, role, name string) (id control.Identity, projects []string, err error) {
	if id, err = control.ParseIdentity(role + " " + name); err != nil {
		return id, nil, cmdline.Usage(what + ": " + err.Error())
	}
	if c.Duration("valid") <= 0 {
		return id, nil, cmdline.Usage(what + ": --valid must be positive")
	}
	if c.IsSet("project") {
		projects = strings.Split(c.String("project"), ",")
	}
	if _, err := control.ProjectURIs(projects); err != nil {
		return id, nil, cmdline.Usage(what + ": --project: " + err.Error())
	}
	if len(projects) > 0 && id.Role != control.RoleUser {
		return id, nil, cmdline.Usage(fmt.Sprintf("%s: --project: %v has no projects; only users have", what, id))
	}
	return id, projects, nil
}
