package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/cmd/internal/ask"
	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
	"github.com/isthmus-grid/isthmus/cmd/internal/contexts"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/pki/ca"
	"github.com/isthmus-grid/isthmus/internal/printable"
)

// contextFlag selects a context other than the one that isthmus login or isthmus context selected.
func contextFlag() cli.Flag {
	return &cli.StringFlag{Name: "context", EnvVars: []string{"ISTHMUS_CONTEXT"}, Usage: "`NAME` of the grid of isthmus login that gives --broker and the certificate, if they are not given", DefaultText: "the one logged in to last"}
}

// certFlags name the files of the certificate that a command presents.
var certFlags = []string{"cert", "tls-key", "ca"}

// useContext sets the flags for the certificate, and, if no daemon is named, for the broker, from a
// context. Flags that name a file of a certificate leave it out of account.
func useContext(c *cli.Context) error {
	for _, name := range certFlags {
		if c.IsSet(name) {
			return nil
		}
	}
	root, err := contexts.Root()
	if err != nil && c.String("context") == "" {
		return nil // no folder for settings, so nothing can be in it
	}
	k, err := contexts.Load(root, c.String("context"))
	if errors.Is(err, contexts.ErrNone) && c.String("context") == "" {
		return nil
	}
	if err != nil {
		return err
	}
	if !c.IsSet("broker") && !c.IsSet("frontal") {
		if err := c.Set("broker", k.Broker); err != nil {
			return err
		}
	}
	return errors.Join(c.Set("cert", k.Files.Cert), c.Set("tls-key", k.Files.Key), c.Set("ca", k.Files.CA))
}

// loginCommand is "isthmus login".
func loginCommand() *cli.Command {
	return &cli.Command{
		Name:  "login",
		Usage: "keep a broker's address and an admin's certificate, so that other commands need not be told them",
		Description: "It asks the broker once, and keeps copies in your folder for settings:\n\n" +
			"  isthmus login --broker broker.example.org:443 --cert admin-ada.pem --tls-key admin-ada.key --ca ca.pem\n" +
			"  isthmus status\n\n" +
			"Several grids: isthmus context lists and selects them, and --context NAME names one for a command. isthmus logout removes one.",
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "broker", Usage: "address of the grid's broker, `HOST:PORT`"},
			&cli.StringFlag{Name: "name", Usage: "`NAME` for it", DefaultText: "the grid's"},
			cmdline.VerboseFlag(),
		}, ownFlags("an admin's")...),
		Action: func(c *cli.Context) error {
			if err := hostPort(c, "login", "broker"); err != nil {
				return err
			}
			creds, err := ownCredentials(c, "login")
			if err != nil {
				return err
			}
			if creds.Identity().Role != control.RoleAdmin {
				return cmdline.Usage(fmt.Sprintf("login: %s is a certificate of %v; isthmus login keeps an admin's (isthmus ca issue admin NAME), and isthmus run finds a user's where isthmus ca enroll --oidc-token puts it", c.String("cert"), creds.Identity()))
			}
			to := control.DialConfig{Addr: c.String("broker"), Role: control.RoleBroker}
			if err := ask.Daemon(c, "login", creds, to, func(context.Context, *control.Session) error { return nil }); err != nil {
				return err
			}
			root, err := contexts.Root()
			if err != nil {
				return fmt.Errorf("login: %w", err)
			}
			name := cmp.Or(c.String("name"), ca.GridOf(creds.Roots()[0]))
			k, err := contexts.Save(root, name, c.String("broker"), ca.Files{Cert: c.String("cert"), Key: c.String("tls-key"), CA: c.String("ca")})
			if err != nil {
				return fmt.Errorf("login: %w", err)
			}
			fmt.Fprintf(c.App.Writer, "%s: broker at %s, %v until %s\n", k.Name, k.Broker, creds.Identity(), creds.Leaf().NotAfter.UTC().Format(time.RFC3339))
			return nil
		},
	}
}

// logoutCommand is "isthmus logout".
func logoutCommand() *cli.Command {
	return &cli.Command{
		Name: "logout", Usage: "remove what isthmus login has kept", ArgsUsage: "[NAME]",
		Action: func(c *cli.Context) error {
			if c.NArg() > 1 {
				return cmdline.Usage("logout: want one NAME, or none for the selected grid")
			}
			root, err := contexts.Root()
			if err == nil {
				err = contexts.Remove(root, c.Args().First())
			}
			if err != nil {
				return fmt.Errorf("logout: %w", err)
			}
			return nil
		},
	}
}

// contextCommand is "isthmus context".
func contextCommand() *cli.Command {
	return &cli.Command{
		Name: "context", Usage: "list the grids of isthmus login, or select one", ArgsUsage: "[NAME]",
		Action: func(c *cli.Context) error {
			root, err := contexts.Root()
			if err != nil {
				return fmt.Errorf("context: %w", err)
			}
			switch c.NArg() {
			case 0:
				return listContexts(c, root)
			case 1:
				if err := contexts.Select(root, c.Args().First()); err != nil {
					return fmt.Errorf("context: %w", err)
				}
				return nil
			}
			return cmdline.Usage("context: want one NAME, or none for a list")
		},
	}
}

func listContexts(c *cli.Context, root string) error {
	all, err := contexts.List(root)
	if err != nil {
		return fmt.Errorf("context: %w", err)
	}
	if len(all) == 0 {
		fmt.Fprintln(os.Stderr, "isthmus: no grid yet: isthmus login --help")
		return nil
	}
	selected, _ := contexts.Selected(root) // none is marked if that cannot be read
	table := printable.NewTable(c.App.Writer)
	table.Row("", "name", "broker", "admin")
	for _, k := range all {
		mark, holder := "", "?"
		if k.Name == selected {
			mark = "*"
		}
		if creds, err := control.LoadCredentials(k.Files.Cert, k.Files.Key, k.Files.CA); err == nil {
			holder = fmt.Sprintf("%s until %s", creds.Identity().Name, creds.Leaf().NotAfter.UTC().Format("2006-01-02"))
		}
		table.Row(mark, k.Name, k.Broker, holder)
	}
	return table.Flush()
}
