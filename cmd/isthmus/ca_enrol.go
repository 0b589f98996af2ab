package main

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/pki/ca"
	"github.com/isthmus-grid/isthmus/internal/pki/enrol"
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
			&cli.StringFlag{Name: "token", Usage: "the `TOKEN`, or - to read it from standard input", EnvVars: []string{"ISTHMUS_TOKEN"}},
			&cli.StringFlag{Name: "broker", Usage: "address of the broker, `HOST:PORT`", DefaultText: "the first of --config"},
			&cli.StringFlag{Name: "config", Usage: "settings `FILE` of the frontal, proxy or helper that enrols, or of a daemon of the grid that a user enrols with"},
			&cli.StringFlag{Name: "oidc-token", Usage: "instead of --token: `FILE` with an identity provider's token, or -"},
			&cli.StringFlag{Name: "ca", Usage: "with --oidc-token: `FILE` with the certificate of the grid's CA", DefaultText: "that of --config"},
			&cli.StringFlag{Name: "node", Usage: "this node's `NAME`, for a token that is valid for any node", DefaultText: "the host's"},
			&cli.StringFlag{Name: "out", Value: ".", Usage: "`FOLDER` to write to", DefaultText: "this one, or a user's folder for settings"}},
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
			if !c.IsSet("config") {
				if err := hostPort(c, "ca enroll", "broker"); err != nil {
					return err
				}
			}
			t, err := ca.ReadToken(token)
			if err != nil {
				return err
			}
			where, err := placeOf(c, t.Identity)
			if err != nil {
				return err
			}
			broker := c.String("broker")
			if broker == "" {
				broker = where.broker
			}
			if broker == "" || c.IsSet("broker") {
				if err := hostPort(c, "ca enroll", "broker"); err != nil {
					return err
				}
			}
			node := c.String("node")
			if strings.HasSuffix(t.Identity, "/*") && node == "" {
				host, err := os.Hostname()
				if err != nil {
					return fmt.Errorf("this host's name: %w; give --node", err)
				}
				node, _, _ = strings.Cut(host, ".")
			}
			// The first answer uses up the token: check first that the files can be written.
			for _, dir := range where.folders() {
				if err := writable(dir); err != nil {
					return err
				}
			}
			got, err := enrol.Ask(c.Context, broker, token, node, nil)
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
	got, err := enrol.AskAsUser(c.Context, broker, strings.TrimSpace(string(token)), roots[0], nil)
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

// ownFlags are the flags for the files of the certificate to present.
func ownFlags(whose string) []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "cert", Usage: "`FILE` with " + whose + " certificate"},
		&cli.StringFlag{Name: "tls-key", Usage: "`FILE` with its key"},
		&cli.StringFlag{Name: "ca", Usage: "`FILE` with the certificate of the grid's CA"},
	}
}

func ownCredentials(c *cli.Context, what string) (*control.Credentials, error) {
	for _, name := range []string{"cert", "tls-key", "ca"} {
		if !c.IsSet(name) {
			return nil, cmdline.Usage(fmt.Sprintf("%s: give --%s", what, name))
		}
	}
	return control.LoadCredentials(c.String("cert"), c.String("tls-key"), c.String("ca"))
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
		}, ownFlags("the old")...),
		Action: func(c *cli.Context) error {
			if c.IsSet("broker") == c.IsSet("frontal") {
				return cmdline.Usage("ca renew: give either --broker or --frontal")
			}
			creds, err := ownCredentials(c, "ca renew")
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(c.Context, 15*time.Second)
			defer cancel()
			var chain [][]byte
			if c.IsSet("broker") {
				if err := hostPort(c, "ca renew", "broker"); err != nil {
					return err
				}
				chain, err = enrol.Renew(ctx, c.String("broker"), creds, nil)
			} else {
				if err := hostPort(c, "ca renew", "frontal"); err != nil {
					return err
				}
				chain, err = renewAt(ctx, c.String("frontal"), creds)
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

// renewAt requests a helper's new certificate from a frontal.
func renewAt(ctx context.Context, addr string, creds *control.Credentials) ([][]byte, error) {
	e := control.NewEndpoint(creds, slog.New(slog.DiscardHandler), nil)
	defer e.Close()
	s, err := e.Dial(ctx, control.DialConfig{Addr: addr, Role: control.RoleFrontal, Visit: true})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return s.Renew(ctx, creds.Certificate().Certificate)
}

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
	creds, err := ownCredentials(c, "ca revoke")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Context, 10*time.Second)
	defer cancel()
	e := control.NewEndpoint(creds, slog.New(slog.DiscardHandler), nil)
	defer e.Close()
	s, err := e.Dial(ctx, control.DialConfig{Addr: addr, Role: control.RoleBroker})
	if err != nil {
		return err
	}
	defer s.Close()
	r, err := controlpb.NewAdminClient(s.Conn()).Revoke(ctx, &controlpb.RevocationList{Der: der})
	if err != nil {
		return control.FromStatus(err)
	}
	kept := "stores it in " + r.GetKept()
	if r.GetKept() == "" {
		kept = "loses it when it restarts: set tls.revoked in its settings"
	}
	fmt.Fprintf(c.App.Writer, "broker at %s: now uses list %d, and %s\n", addr, r.GetNumber(), kept)
	return nil
}
