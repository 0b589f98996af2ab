package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/cmd/internal/ask"
	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/pki/ca"
)

// caRevokeCommand is "isthmus ca revoke".
func caRevokeCommand(dir cli.Flag) *cli.Command {
	return &cli.Command{
		Name:      "revoke",
		Usage:     "revoke certificates, and end the sessions of their holders",
		ArgsUsage: "ROLE NAME | SERIAL",
		Description: "ROLE NAME revokes all certificates of a holder, and all tokens for it, issued up to now; a holder that enrols with a new token\n" +
			"is accepted again. SERIAL, in hexadecimal, revokes one certificate. The revocation list is written beside\n" +
			"the CA, as " + ca.RevocationsFile + ", and with --broker an admin uploads it; the broker distributes it. If the CA is offline,\n" +
			"copy that file to a machine with network access and upload it there with --list.",
		Flags: append([]cli.Flag{dir,
			&cli.StringFlag{Name: "list", Usage: "upload the revocation list in `FILE` unchanged"},
			&cli.StringSliceFlag{Name: "broker", Usage: "address of a broker to upload the list to, `HOST:PORT`; may be repeated"},
			cmdline.VerboseFlag(),
		}, ownFlags("an admin's")...),
		Action: func(c *cli.Context) error {
			der, err := revocations(c)
			if err != nil {
				return err
			}
			for _, addr := range c.StringSlice("broker") {
				if err := handOver(c, addr, der); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// revocations makes the list requested on the command line, or reads it.
func revocations(c *cli.Context) ([]byte, error) {
	if c.IsSet("list") {
		if c.NArg() > 0 || !c.IsSet("broker") {
			return nil, cmdline.Usage("ca revoke: --list needs --broker, and takes no ROLE NAME or SERIAL")
		}
		text, err := os.ReadFile(c.String("ca"))
		if err != nil {
			return nil, fmt.Errorf("--ca: %w", err)
		}
		roots, err := control.ParseRoots(text)
		if err != nil {
			return nil, fmt.Errorf("--ca %s: %w", c.String("ca"), err)
		}
		if text, err = os.ReadFile(c.String("list")); err != nil {
			return nil, err
		}
		_, der, err := control.ParseRevocations(text, roots)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.String("list"), err)
		}
		return der, nil
	}
	var ids []control.Identity
	var serials []string
	switch c.NArg() {
	case 1:
		if _, err := ca.ParseSerial(c.Args().First()); err != nil {
			return nil, cmdline.Usage("ca revoke: " + err.Error() + ", or ROLE NAME")
		}
		serials = []string{c.Args().First()}
	default:
		if err := cmdline.Words(c, "ca revoke", 2); err != nil {
			return nil, err
		}
		id, err := control.ParseIdentity(c.Args().Get(0) + " " + c.Args().Get(1))
		if err != nil {
			return nil, cmdline.Usage("ca revoke: " + err.Error())
		}
		ids = []control.Identity{id}
	}
	authority, err := ca.Load(c.String("dir"))
	if err != nil {
		return nil, err
	}
	list, der, err := authority.Revoke(c.String("dir"), ids, serials, time.Now())
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(c.App.Writer, "revoked; list %d is in %s\n", list.Number, filepath.Join(c.String("dir"), ca.RevocationsFile))
	if !c.IsSet("broker") {
		fmt.Fprintln(c.App.Writer, "no broker has it yet: upload it with isthmus ca revoke --list FILE --broker HOST:PORT")
	}
	return der, nil
}

// handOver sends the list to a broker.
func handOver(c *cli.Context, addr string, der []byte) error {
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return cmdline.Usage(fmt.Sprintf("ca revoke: --broker %s: want HOST:PORT", addr))
	}
	if err := useContext(c); err != nil {
		return fmt.Errorf("ca revoke: %w", err)
	}
	creds, err := ownCredentials(c, "ca revoke")
	if err != nil {
		return err
	}
	var r *controlpb.RevokeResponse
	err = ask.Daemon(c, "ca revoke", creds, control.DialConfig{Addr: addr, Role: control.RoleBroker}, func(ctx context.Context, s *control.Session) (err error) {
		r, err = controlpb.NewAdminClient(s.Conn()).Revoke(ctx, &controlpb.RevocationList{Der: der})
		return control.FromStatus(err)
	})
	if err != nil {
		return err
	}
	kept := "stores it in " + r.GetKept()
	if r.GetKept() == "" {
		kept = "loses it when it restarts: set tls.revoked in its settings"
	}
	fmt.Fprintf(c.App.Writer, "broker at %s: now uses list %d, and %s\n", addr, r.GetNumber(), kept)
	return nil
}
