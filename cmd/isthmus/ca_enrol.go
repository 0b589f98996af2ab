package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/cmd/internal/ask"
	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/pki/ca"
	"github.com/isthmus-grid/isthmus/internal/pki/enrol"
)

// caEnrollCommand is "isthmus ca enroll": a token becomes a certificate.
func caEnrollCommand() *cli.Command {
	return &cli.Command{
		Name:  "enroll",
		Usage: "get the certificate that a token is for, or a user's with an identity provider's token",
		Description: "The key is created here and stays here. The broker is trusted only if it belongs to the grid that the token names, so\n" +
			"no other setup is needed. The certificate, its key and the CA's certificate are written to the folder --out,\n" +
			"or with --config to the paths that a daemon's settings name, owned by that daemon's user. Without either, a user's go to the\n" +
			"user's folder for settings, where isthmus run looks for them.\n\n" +
			"With --oidc-token a user presents a token of an identity provider: an ID token of OpenID Connect, a WLCG token or a\n" +
			"SciToken, as the broker's settings allow. --ca names the grid whose broker may see it. With --config\n" +
			"the broker and the CA are those that a daemon's settings name; the daemon's own files do not change. The\n" +
			"certificate is valid for some hours and is not renewed: present a new token.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "token", Usage: "the `TOKEN`, or - to read it from standard input", EnvVars: []string{envToken}},
			&cli.StringFlag{Name: "broker", Usage: "address of the broker, `HOST:PORT`", DefaultText: "the first of --config"},
			&cli.StringFlag{Name: "frontal", Usage: "the site's frontal, `HOST:PORT`, which passes a node's request on if the node does not reach the broker", DefaultText: "the token's"},
			&cli.StringFlag{Name: "config", Usage: "settings `FILE` of the frontal, proxy or helper that enrols, or of a daemon of the grid that a user enrols with"},
			&cli.StringFlag{Name: "oidc-token", Usage: "instead of --token: `FILE` with an identity provider's token, or -"},
			&cli.StringFlag{Name: "ca", Usage: "with --oidc-token: `FILE` with the certificate of the grid's CA", DefaultText: "that of --config"},
			&cli.StringFlag{Name: "node", Usage: "this node's `NAME`, for a token that is valid for any node", DefaultText: "the host's"},
			&cli.StringFlag{Name: "out", Value: ".", Usage: "`FOLDER` to write to", DefaultText: "this one, or a user's folder for settings"},
			cmdline.VerboseFlag()},
		Action: func(c *cli.Context) error {
			if c.IsSet("oidc-token") {
				return enrollUser(c)
			}
			token := c.String("token")
			if token == "-" {
				text, err := readSmall("-", 1<<16)
				if err != nil {
					return err
				}
				token = string(text)
			}
			token = strings.TrimSpace(token)
			if token == "" {
				return cmdline.Usage("ca enroll: give --token: the administrator of the grid's CA makes one with isthmus ca token")
			}
			if c.IsSet("broker") {
				if err := hostPort(c, "ca enroll", "broker"); err != nil {
					return err
				}
			}
			if c.IsSet("frontal") {
				if err := hostPort(c, "ca enroll", "frontal"); err != nil {
					return err
				}
			}
			t, err := ca.ReadToken(token)
			if err != nil {
				return ask.TokenFailed(c, "ca enroll", err)
			}
			where, err := placeOf(c, t.Identity)
			if err != nil {
				return err
			}
			broker := cmp.Or(c.String("broker"), where.broker, t.Broker)
			if broker == "" {
				if err := hostPort(c, "ca enroll", "broker"); err != nil {
					return err
				}
			}
			node, err := nodeName(c, t)
			if err != nil {
				return err
			}
			// The first answer uses up the token: check first that the files can be written.
			for _, dir := range where.folders() {
				if err := writable(dir); err != nil {
					return err
				}
			}
			var got *enrol.Enrolled
			err = ask.Enrolment(c, "ca enroll", broker, func(ctx context.Context, dial ask.Dial) (err error) {
				got, err = enrol.Ask(ctx, broker, token, node, orBy(cmp.Or(c.String("frontal"), t.Frontal), dial))
				return err
			})
			if err != nil {
				return err
			}
			if where.files != (ca.Files{}) {
				if err := ca.InstallAs(where.files, got.Chain, got.Key, got.Root); err != nil {
					return err
				}
				fmt.Fprintf(c.App.Writer, "issued the certificate of %v: %s\n", got.ID, where.files.Cert)
				return nil
			}
			files, err := ca.Install(where.out, got.ID, got.Chain, got.Key, got.Root)
			if err != nil {
				return err
			}
			fmt.Fprintf(c.App.Writer, "tls:\n  cert: %s\n  key: %s\n  ca: %s\n", files.Cert, files.Key, files.CA)
			return nil
		},
	}
}

// directTime is how long a node tries to reach the broker by itself.
const directTime = 3 * time.Second

// orBy returns a dial to the broker that goes by its site's frontal where the node has no way there; dial
// itself if no frontal is named.
func orBy(frontal string, dial ask.Dial) ask.Dial {
	if frontal == "" {
		return dial
	}
	return func(ctx context.Context, broker string, shake enrol.Handshake) (*tls.Conn, error) {
		direct, cancel := context.WithTimeout(ctx, directTime)
		defer cancel()
		c, err := dial(direct, broker, shake)
		if err == nil {
			return c, nil
		}
		c, otherErr := dial(ctx, frontal, shake)
		if otherErr != nil {
			return nil, fmt.Errorf("%w; by the frontal at %s: %w", err, frontal, otherErr)
		}
		return c, nil
	}
}

// enrollUser is "isthmus ca enroll --oidc-token".
func enrollUser(c *cli.Context) error {
	if c.String("token") != "" || c.IsSet("node") {
		return cmdline.Usage("ca enroll: --oidc-token goes with neither --token (or ISTHMUS_TOKEN) nor --node")
	}
	broker, rootFile, err := brokerFor(c)
	if err != nil {
		return err
	}
	rootPEM, err := readSmall(rootFile, 1<<16)
	if err != nil {
		return err
	}
	roots, err := control.ParseRoots(rootPEM)
	if err != nil {
		return fmt.Errorf("%s: %w", rootFile, err)
	}
	token, err := readSmall(c.String("oidc-token"), 1<<16)
	if err != nil {
		return err
	}
	out := c.String("out")
	if !c.IsSet("out") {
		dir, err := os.UserConfigDir()
		if err != nil {
			return fmt.Errorf("%w; give --out", err)
		}
		out = filepath.Join(dir, "isthmus")
	}
	if err := writable(out); err != nil {
		return err
	}
	var got *enrol.Enrolled
	err = ask.Enrolment(c, "ca enroll", broker, func(ctx context.Context, dial ask.Dial) (err error) {
		got, err = enrol.AskAsUser(ctx, broker, strings.TrimSpace(string(token)), roots[0], dial)
		return err
	})
	if err != nil {
		return err
	}
	files := ca.FilesFor(out, got.ID)
	if c.IsSet("out") {
		files, err = ca.Install(out, got.ID, got.Chain, got.Key, got.Root)
	} else {
		files.Cert, files.Key = filepath.Join(out, "user.pem"), filepath.Join(out, "user.key")
		err = ca.InstallAs(files, got.Chain, got.Key, got.Root)
	}
	if err != nil {
		return err
	}
	leaf, err := x509.ParseCertificate(got.Chain[0])
	if err != nil {
		return err
	}
	projects, err := control.ProjectsOf(leaf)
	if err != nil {
		return err
	}
	fmt.Fprintf(c.App.Writer, "%v until %s, projects %q\ncert: %s\nkey: %s\n", got.ID, leaf.NotAfter.UTC().Format(time.RFC3339), projects, files.Cert, files.Key)
	return nil
}

// brokerFor returns where a user presents an identity provider's token: the broker's address and
// the file with the grid's CA, from the flags, and where they are missing from the settings of one
// of this host's daemons.
func brokerFor(c *cli.Context) (broker, rootFile string, err error) {
	var known place
	if file := c.String("config"); file != "" {
		if known, err = placeIn(file); err != nil {
			return "", "", err
		}
	}
	if rootFile = c.String("ca"); rootFile == "" {
		rootFile = known.files.CA
	}
	if rootFile == "" {
		return "", "", cmdline.Usage("ca enroll: give --ca, the certificate of the grid's CA: the token is sent only to a broker of that grid")
	}
	if c.IsSet("broker") || known.broker == "" {
		return c.String("broker"), rootFile, hostPort(c, "ca enroll", "broker")
	}
	return known.broker, rootFile, nil
}

// hostPort returns usage unless the flag is an address.
func hostPort(c *cli.Context, what, flag string) error {
	if !c.IsSet(flag) {
		return cmdline.Usage(fmt.Sprintf("%s: give --%s HOST:PORT", what, flag))
	}
	if _, _, err := net.SplitHostPort(c.String(flag)); err != nil {
		return cmdline.Usage(fmt.Sprintf("%s: --%s %s: want HOST:PORT", what, flag, c.String(flag)))
	}
	return nil
}

// writable returns why no file can be made in a folder, which it creates if necessary.
func writable(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return takesFiles(dir)
}

// takesFiles returns why no file can be made in a folder.
func takesFiles(dir string) error {
	f, err := os.CreateTemp(dir, ".try-")
	if err != nil {
		return err
	}
	f.Close()
	return os.Remove(f.Name())
}
