package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/cmd/internal/ask"
	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/pki/ca"
	"github.com/isthmus-grid/isthmus/internal/pki/enrol"
	"github.com/isthmus-grid/isthmus/internal/support/doctor"
)

// Where packages keep state, and the account of the daemons.
const (
	stateDir = "/var/lib/isthmus"
	account  = "isthmus"
)

// envToken has a token where a command line would show it to others.
const envToken = "ISTHMUS_TOKEN"

// nodesPort is the port on which a frontal usually serves its site's nodes.
const nodesPort = 7440

// upCommand is "isthmus up".
func upCommand() *cli.Command {
	return &cli.Command{
		Name:      "up",
		Usage:     "make this host a frontal, proxy or helper of a grid, by one token",
		ArgsUsage: "TOKEN",
		Description: "The administrator of the grid's CA makes the token, with what the host has to know:\n\n" +
			"  isthmus ca token --broker broker.example.org:443 frontal sitea\n\n" +
			"On the host it writes the settings that are still those of the package, or none, enrols, starts the daemon, and prints what doctor finds. " +
			"What is done already is kept, so the command can be repeated. TOKEN may be -, for standard input; without one it is that in $" + envToken + ".\n\n" +
			"Without root, or in a container, with --dir: settings, certificate and state are in that folder, and --foreground runs the daemon in place of this command.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "broker", Usage: "address of the broker, `HOST:PORT`", DefaultText: "the token's"},
			&cli.StringFlag{Name: "frontal", Usage: "for a helper: address of its site's frontal, `HOST:PORT`", DefaultText: "the token's"},
			&cli.StringFlag{Name: "listen", Usage: "for a frontal: the address at which the site's nodes reach it, `HOST:PORT`", DefaultText: "this host's private address, if it has just one, and port " + strconv.Itoa(nodesPort)},
			&cli.StringFlag{Name: "node", Usage: "this node's `NAME`, for a token that is valid for any node", DefaultText: "the host's"},
			&cli.StringFlag{Name: "dir", Usage: "`FOLDER` for everything, in place of " + settingsDir + " and " + stateDir},
			&cli.BoolFlag{Name: "no-start", Usage: "start nothing"},
			&cli.BoolFlag{Name: "foreground", Usage: "become the daemon, in place of a systemd unit"},
			cmdline.VerboseFlag(),
		},
		Action: func(c *cli.Context) error {
			if os.Getenv(envToken) == "" || c.NArg() > 0 {
				if err := cmdline.Words(c, "up", 1); err != nil {
					return err
				}
			}
			h, err := newcomerOf(c)
			if err != nil {
				return err
			}
			if err := h.settle(); err != nil {
				return err
			}
			if err := h.enrol(); err != nil {
				return err
			}
			return h.start()
		},
	}
}

// A newcomer is a host that is to take part in a grid.
type newcomer struct {
	c        *cli.Context
	token    ca.Token
	text     string // of the token
	role     string
	node     string // of a helper
	broker   string
	frontal  string // of a helper's site; "": not known
	settings string // file
	state    string // folder
}

// newcomerOf reads the command line, and the token.
func newcomerOf(c *cli.Context) (*newcomer, error) {
	h := &newcomer{c: c, text: cmp.Or(c.Args().First(), os.Getenv(envToken))}
	if h.text == "-" {
		text, err := readSmall("-", 1<<16)
		if err != nil {
			return nil, err
		}
		h.text = string(text)
	}
	h.text = strings.TrimSpace(h.text)
	var err error
	if h.token, err = ca.ReadToken(h.text); err != nil {
		return nil, ask.TokenFailed(c, "up", err)
	}
	h.role, _, _ = strings.Cut(h.token.Identity, " ")
	if !slices.Contains([]string{"frontal", "proxy", "helper"}, h.role) || h.token.Allocation != nil {
		return nil, cmdline.Usage(fmt.Sprintf("up: the token is for %s; up takes one for a frontal, proxy or helper (others: isthmus ca enroll, isthmus node)", h.token.Identity))
	}
	if h.broker = cmp.Or(c.String("broker"), h.token.Broker); h.broker == "" {
		return nil, cmdline.Usage("up: the token names no broker; give --broker HOST:PORT")
	}
	if err := checkAddresses([]setting{{"broker", h.broker}}); err != nil {
		return nil, err
	}
	h.frontal = cmp.Or(c.String("frontal"), h.token.Frontal)
	if h.node, err = nodeName(c, h.token); err != nil {
		return nil, err
	}
	h.settings, h.state = filepath.Join(settingsDir, h.role+".yaml"), filepath.Join(stateDir, h.role)
	if dir := c.String("dir"); dir != "" {
		if h.state, err = filepath.Abs(dir); err != nil {
			return nil, err
		}
		h.settings = filepath.Join(h.state, h.role+".yaml")
	}
	return h, nil
}

// nodeName returns the name that a token leaves to the node: that of the flag, or of the host.
func nodeName(c *cli.Context, t ca.Token) (string, error) {
	if node := c.String("node"); node != "" || !strings.HasSuffix(t.Identity, "/*") {
		return node, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("this host's name: %w; give --node", err)
	}
	node, _, _ := strings.Cut(host, ".")
	return node, nil
}

// done reports a step.
func (h *newcomer) done(step, format string, args ...any) {
	fmt.Fprintf(h.c.App.Writer, "%-12s %s\n", step, fmt.Sprintf(format, args...))
}

// wanted returns the settings that the host must have.
func (h *newcomer) wanted() ([]setting, error) {
	_, name, _ := strings.Cut(h.token.Identity, " ")
	switch h.role {
	case "frontal":
		listen := h.c.String("listen")
		if listen == "" {
			addr, err := privateAddress()
			if err != nil {
				return nil, cmdline.Usage("up: " + err.Error() + "; give --listen with the address at which this site's nodes reach this host")
			}
			listen = netip.AddrPortFrom(addr, nodesPort).String()
		}
		return []setting{{"site", name}, {"broker", "['" + h.broker + "']"}, {"listen", listen}}, nil
	case "helper":
		if h.frontal == "" {
			return nil, cmdline.Usage("up: the token names no frontal; give --frontal HOST:PORT")
		}
		return []setting{{"frontal", h.frontal}}, nil
	}
	return []setting{{"broker", "['" + h.broker + "']"}}, nil
}

// privateAddress returns the one private IPv4 address of this host.
func privateAddress() (netip.Addr, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return netip.Addr{}, err
	}
	var private []netip.Addr
	for _, a := range addrs {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil && prefix.Addr().Is4() && prefix.Addr().IsPrivate() {
			private = append(private, prefix.Addr())
		}
	}
	if len(private) != 1 {
		return netip.Addr{}, fmt.Errorf("this host has %d private IPv4 addresses", len(private))
	}
	return private[0], nil
}

// address is what a HOST:PORT may consist of: the addresses of a token become settings before
// anybody has verified it.
var address = regexp.MustCompile(`^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+):[0-9]{1,5}$`)

// checkAddresses refuses settings that are no addresses.
func checkAddresses(wanted []setting) error {
	for _, s := range wanted {
		if value := strings.TrimSuffix(strings.TrimPrefix(s.value, "['"), "']"); s.key != "site" && !address.MatchString(value) {
			return cmdline.Usage(fmt.Sprintf("up: %s %q: want HOST:PORT", s.key, value))
		}
	}
	return nil
}

// settle writes the settings, unless they are there.
func (h *newcomer) settle() error {
	wanted, err := h.wanted()
	if err == nil {
		err = checkAddresses(wanted)
	}
	if err != nil {
		return err
	}
	before, err := os.ReadFile(h.settings)
	isNew := errors.Is(err, fs.ErrNotExist)
	if err != nil && !isNew {
		return fmt.Errorf("up: %w", err)
	}
	text := string(before)
	if isNew {
		text = h.template()
	}
	text, err = settle(text, wanted)
	if err != nil {
		return &cmdline.Failure{Cause: fmt.Sprintf("up: %s: %v", h.settings, err), Next: "change the file, or move it away to have another written", Err: err, Verbose: h.c.Bool("verbose")}
	}
	if text == string(before) {
		h.done("settings", "%s, as it was", h.settings)
		return nil
	}
	if _, err := parseSettings(h.role, h.settings, []byte(text)); err != nil {
		return fmt.Errorf("up: the new settings: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(h.settings), 0o755); err != nil {
		return fmt.Errorf("up: %w", err)
	}
	if err := control.WriteFile(h.settings, []byte(text), 0o640); err != nil {
		return fmt.Errorf("up: %w", err)
	}
	h.done("settings", "%s", h.settings)
	return h.give(h.settings, false)
}

// template returns settings that name files only.
func (h *newcomer) template() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Written by isthmus up. isthmus %s --help lists all settings.\n", h.role)
	fmt.Fprintf(&b, "tls:\n  cert: %s/tls/cert.pem\n  key: %[1]s/tls/key.pem\n  ca: %[1]s/tls/ca.pem\n", h.state)
	if h.c.IsSet("dir") {
		fmt.Fprintf(&b, "admin_socket: %s/admin.sock\n", h.state)
		if h.role == "helper" {
			fmt.Fprintf(&b, "socket: %s/helper.sock\nnode_service: {store: %[1]s/jobs}\n", h.state)
		}
	}
	return b.String()
}

// give lets the daemons' account read a file or, if it is to be theirs, change it, too; if this process may
// and there is such an account.
func (h *newcomer) give(file string, theirs bool) error {
	if os.Geteuid() != 0 || h.c.IsSet("dir") {
		return nil
	}
	u, err := user.Lookup(account)
	if err != nil {
		return nil // nothing was installed by a package; the daemon is somebody else's matter
	}
	uid, _ := strconv.Atoi(u.Uid) // of Linux, always a number
	gid, _ := strconv.Atoi(u.Gid)
	if !theirs {
		uid = 0
	}
	return os.Chown(file, uid, gid)
}

// enrol gets the host's certificate, unless it has one.
func (h *newcomer) enrol() error {
	where, err := placeIn(h.settings)
	if err != nil {
		return fmt.Errorf("up: %w", err)
	}
	if creds, err := control.LoadCredentials(where.files.Cert, where.files.Key, where.files.CA); err == nil && h.token.Fits(creds.Identity()) == nil && time.Now().Before(creds.Leaf().NotAfter) {
		h.done("certificate", "%v until %s, as it was", creds.Identity(), creds.Leaf().NotAfter.UTC().Format(time.RFC3339))
		return nil
	}
	for _, dir := range where.folders() { // the first answer uses up the token
		if err := writable(dir); err != nil {
			return fmt.Errorf("up: %w", err)
		}
	}
	var got *enrol.Enrolled
	err = ask.Enrolment(h.c, "up", h.broker, func(ctx context.Context, dial ask.Dial) (err error) {
		got, err = enrol.Ask(ctx, h.broker, h.text, h.node, orBy(h.frontal, dial))
		return err
	})
	if err != nil {
		return err
	}
	if err := ca.InstallAs(where.files, got.Chain, got.Key, got.Root); err != nil {
		return err
	}
	for _, file := range append(where.folders(), where.files.Cert, where.files.Key, where.files.CA) {
		if err := h.give(file, true); err != nil {
			return fmt.Errorf("up: %w", err)
		}
	}
	h.done("certificate", "%v, in %s", got.ID, where.files.Cert)
	return nil
}

// start starts the daemon, and prints what doctor finds.
func (h *newcomer) start() error {
	if h.c.Bool("foreground") {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		h.done("daemon", "isthmus %s --config %s", h.role, h.settings)
		env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, envToken+"=") })
		return syscall.Exec(self, []string{"isthmus", h.role, "--config", h.settings}, env)
	}
	if _, err := os.Stat("/run/systemd/system"); err != nil || h.c.Bool("no-start") || h.c.IsSet("dir") {
		h.done("daemon", "not started: isthmus %s --config %s", h.role, h.settings)
		return nil
	}
	unit := "isthmus-" + h.role + ".service"
	if out, err := exec.CommandContext(h.c.Context, "systemctl", "enable", "--now", unit).CombinedOutput(); err != nil {
		return &cmdline.Failure{
			Cause: fmt.Sprintf("up: %s: %v: %s", unit, err, strings.TrimSpace(string(out))), Err: err, Verbose: h.c.Bool("verbose"),
			Next: "systemctl status " + unit + "; journalctl -u " + unit,
		}
	}
	h.done("daemon", "%s is enabled and runs", unit)
	if h.role == "proxy" {
		return nil // doctor is for sites
	}
	s, err := subject(h.settings)
	if err != nil {
		return finish(h.c, settingsReport(h.settings, err))
	}
	return finish(h.c, doctor.Conclude(look(h.c.Context, s)))
}
