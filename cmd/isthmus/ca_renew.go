package main

import (
	"context"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/cmd/internal/ask"
	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/pki/ca"
	"github.com/isthmus-grid/isthmus/internal/pki/enrol"
)

// ownFlags are the flags for the files of the certificate to present.
func ownFlags(whose string) []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "cert", Usage: "`FILE` with " + whose + " certificate"},
		&cli.StringFlag{Name: "tls-key", Usage: "`FILE` with its key"},
		&cli.StringFlag{Name: "ca", Usage: "`FILE` with the certificate of the grid's CA"},
	}
}

func ownCredentials(c *cli.Context, what string) (*control.Credentials, error) {
	for _, name := range certFlags {
		if !c.IsSet(name) {
			return nil, cmdline.Usage(fmt.Sprintf("%s: give --%s", what, name))
		}
	}
	return ask.Credentials(c, what)
}

// caRenewCommand is "isthmus ca renew": a new certificate for an old one.
func caRenewCommand() *cli.Command {
	return &cli.Command{
		Name:  "renew",
		Usage: "renew a certificate that is about to expire",
		Description: "The old one must still be valid. The key stays the same; the file --cert is replaced, and a daemon that uses it loads\n" +
			"the new one. Daemons renew automatically unless their settings say tls.renew: false. A helper that cannot\n" +
			"reach the broker asks its frontal (--frontal).",
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "broker", Usage: "address of the broker, `HOST:PORT`"},
			&cli.StringFlag{Name: "frontal", Usage: "instead of --broker, for a helper: address of its frontal, `HOST:PORT`"},
			cmdline.VerboseFlag(),
		}, ownFlags("the old")...),
		Action: func(c *cli.Context) error {
			if err := useContext(c); err != nil {
				return fmt.Errorf("ca renew: %w", err)
			}
			if c.IsSet("broker") == c.IsSet("frontal") {
				return cmdline.Usage("ca renew: give either --broker or --frontal")
			}
			creds, err := ownCredentials(c, "ca renew")
			if err != nil {
				return err
			}
			var chain [][]byte
			if c.IsSet("broker") {
				if err := hostPort(c, "ca renew", "broker"); err != nil {
					return err
				}
				chain, err = renewAtBroker(c, creds)
			} else {
				if err := hostPort(c, "ca renew", "frontal"); err != nil {
					return err
				}
				chain, err = renewAt(c, c.String("frontal"), creds)
			}
			if err != nil {
				return err
			}
			if err := creds.Replace(ca.ChainPEM(chain)); err != nil {
				return err
			}
			fmt.Fprintf(c.App.Writer, "%s: %v until %s\n", c.String("cert"), creds.Identity(), creds.Leaf().NotAfter.UTC().Format(time.RFC3339))
			return nil
		},
	}
}

// renewAtBroker requests a new certificate from the broker.
func renewAtBroker(c *cli.Context, creds *control.Credentials) (chain [][]byte, err error) {
	err = ask.Enrolment(c, "ca renew", c.String("broker"), func(ctx context.Context, dial ask.Dial) (err error) {
		chain, err = enrol.Renew(ctx, c.String("broker"), creds, dial)
		return err
	})
	return chain, err
}

// renewAt requests a helper's new certificate from a frontal.
func renewAt(c *cli.Context, addr string, creds *control.Credentials) (chain [][]byte, err error) {
	to := control.DialConfig{Addr: addr, Role: control.RoleFrontal, Visit: true}
	err = ask.Daemon(c, "ca renew", creds, to, func(ctx context.Context, s *control.Session) (err error) {
		chain, err = s.Renew(ctx, creds.Certificate().Certificate)
		return err
	})
	return chain, err
}
