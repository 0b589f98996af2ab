package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
	"gopkg.in/yaml.v3"

	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
	"github.com/isthmus-grid/isthmus/connhelper"
	"github.com/isthmus-grid/isthmus/frontal"
	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/daemon"
	"github.com/isthmus-grid/isthmus/internal/support/doctor"
	"github.com/isthmus-grid/isthmus/launch/nodeservice"
	"github.com/isthmus-grid/isthmus/overlay"
)

// doctorCommand is "isthmus doctor": what blocks connections, and who can change it.
func doctorCommand() *cli.Command {
	return &cli.Command{
		Name:      "doctor",
		Usage:     "find what prevents this node or gateway from reaching the grid: which layer, which device, which rule",
		ArgsUsage: "[SITE-A SITE-B]",
		Description: "Give --config with the settings of this host's helper or frontal. With two sites (or nodes,\n" +
			"NODE@SITE) and an admin's certificate it also asks the broker how they connect, and prints what\n" +
			"to test at the other end.\n\nExit status:\n" + exitTable(),
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "config", Usage: "settings `FILE` of this host's helper or frontal"},
			&cli.StringSliceFlag{Name: "proxy", Usage: "another public address to try, `ADDRESS:PORT`: a proxy, or a listener of a peer; may be repeated"},
			&cli.BoolFlag{Name: "firewall-request", Usage: "print the firewall rules to ask for"},
			&cli.BoolFlag{Name: "json", Usage: "print one JSON object"},
		}, adminFlags()...),
		Action: runDoctor,
	}
}

// exitTable lists the classes that end with a status of their own.
func exitTable() string {
	var b strings.Builder
	rows := doctor.ClassTable()
	slices.SortStableFunc(rows, func(a, b doctor.ClassRow) int { return a.Exit - b.Exit })
	fmt.Fprintf(&b, "   0  no problem found (notes do not count)\n   1  the doctor itself failed\n   2  a mistake on the command line\n")
	for _, r := range rows {
		if r.Exit != 0 {
			fmt.Fprintf(&b, "  %2d  %-14s %s\n", r.Exit, r.Class, r.What)
		}
	}
	return b.String()
}

func runDoctor(c *cli.Context) error {
	if n := c.NArg(); n != 0 && n != 2 {
		return cmdline.Words(c, "doctor", 2)
	}
	if c.NArg() == 0 && !c.IsSet("config") {
		return cmdline.Usage("doctor: give --config with the settings of this host's helper or frontal")
	}
	proxies, err := publicAddresses(c.StringSlice("proxy"))
	if err != nil {
		return err
	}
	var pair *doctor.Pair
	if c.NArg() == 2 {
		if pair, err = askPair(c); err != nil {
			return err
		}
	}
	s := doctor.Subject{Role: control.RoleAdmin, Address: c.String("broker"), Cert: c.String("cert"), Key: c.String("tls-key"), CA: c.String("ca")}
	if file := c.String("config"); file != "" {
		if s, err = subject(file); err != nil {
			return finish(c, settingsReport(file, err))
		}
	}
	s.Proxies, s.Pair = proxies, pair
	return finish(c, doctor.Conclude(look(c.Context, s)))
}

// look gathers observations, and shows its progress on a terminal.
func look(ctx context.Context, s doctor.Subject) doctor.Observations {
	if terminal(os.Stderr) {
		s.Progress = func(what string) { fmt.Fprintf(os.Stderr, "\r%s ...\x1b[K", what) }
		defer fmt.Fprint(os.Stderr, "\r\x1b[K")
	} else {
		defer cmdline.Waiting("the answers of what is tried", "")()
	}
	return doctor.Look(ctx, s)
}

// finish prints a report and exits with its status.
func finish(c *cli.Context, r doctor.Report) error {
	var err error
	if c.Bool("json") {
		err = r.JSON(c.App.Writer)
	} else {
		err = r.Print(c.App.Writer, c.Bool("firewall-request"))
	}
	if err != nil || r.Exit == 0 {
		return err
	}
	return cli.Exit("", r.Exit)
}

// settingsReport is the report when the settings cannot be used.
func settingsReport(file string, cause error) doctor.Report {
	return doctor.Report{Class: doctor.Settings, Exit: doctor.Settings.ExitCode(), Findings: []doctor.Finding{{
		Layer: "local", Target: file, Status: doctor.Failed, Class: doctor.Settings, Evidence: cause.Error(),
		Meaning: "the daemon does not start with these settings, so the addresses to test are unknown",
		Device:  "this host", Fix: "correct the file; the daemon's --check prints the details",
	}}}
}

func publicAddresses(texts []string) ([]netip.AddrPort, error) {
	var all []netip.AddrPort
	for _, t := range texts {
		a, err := netip.ParseAddrPort(t)
		if err != nil {
			return nil, cmdline.Usage(fmt.Sprintf("doctor: --proxy %s: want ADDRESS:PORT", t))
		}
		all = append(all, a)
	}
	return all, nil
}

// subject reads a settings file and determines its daemon.
func subject(file string) (doctor.Subject, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return doctor.Subject{}, err
	}
	var keys map[string]yaml.Node
	if err := yaml.Unmarshal(text, &keys); err != nil {
		return doctor.Subject{}, fmt.Errorf("%s: %w", file, err)
	}
	if _, ok := keys["frontal"]; ok {
		return helperSubject(file, text)
	}
	if _, ok := keys["site"]; ok {
		return frontalSubject(file, text)
	}
	return doctor.Subject{}, fmt.Errorf("%s: neither settings of a helper (they have the key frontal) nor of a frontal (key site)", file)
}

func helperSubject(file string, text []byte) (doctor.Subject, error) {
	cfg, err := daemon.Parse[connhelper.Config](file, text)
	if err != nil {
		return doctor.Subject{}, err
	}
	via, err := httpProxy(cfg.HTTPProxy.Address, cfg.HTTPProxy.User, cfg.HTTPProxy.PasswordFile)
	return doctor.Subject{
		Role: control.RoleHelper, Settings: file, Denied: texts(cfg.Advice()), Address: cfg.Frontal, HTTPProxy: via, Socket: cfg.Socket, Door: cfg.Socket + nodeservice.DoorSuffix,
		Cert: string(cfg.TLS.Cert), Key: string(cfg.TLS.Key), CA: string(cfg.TLS.CA),
	}, err
}

func frontalSubject(file string, text []byte) (doctor.Subject, error) {
	cfg, err := daemon.Parse[frontal.Config](file, text)
	if err != nil {
		return doctor.Subject{}, err
	}
	via, err := httpProxy(cfg.HTTPProxy.Address, cfg.HTTPProxy.User, cfg.HTTPProxy.PasswordFile)
	profile := cfg.SiteProfile()
	return doctor.Subject{
		Role: control.RoleFrontal, Settings: file, Denied: texts(cfg.Advice()), Address: cfg.Broker[0], Others: cfg.Broker[1:], HTTPProxy: via, Profile: &profile, MeasuresMTU: !cfg.Profile.MTU.Given && cfg.Measure > 0,
		Cert: string(cfg.TLS.Cert), Key: string(cfg.TLS.Key), CA: string(cfg.TLS.CA),
	}, err
}

// texts returns the faults as lines.
func texts(faults daemon.Faults) (all []string) {
	for _, f := range faults {
		all = append(all, f.Key+": "+f.Err.Error())
	}
	return all
}

func httpProxy(address, user string, passwordFile daemon.Path) (carrier.HTTPProxy, error) {
	p := carrier.HTTPProxy{Addr: address, User: user}
	if passwordFile == "" {
		return p, nil
	}
	password, err := carrier.ReadPassword(string(passwordFile))
	if err != nil {
		return p, fmt.Errorf("http_proxy.password_file: %w", err)
	}
	p.Password = password
	return p, nil
}

// askPair queries the broker for the plan of the two named sites, and whether it has sessions with
// both. A node stands for its site.
func askPair(c *cli.Context) (*doctor.Pair, error) {
	if c.IsSet("frontal") {
		return nil, cmdline.Usage("doctor: only the broker knows how sites connect; give --broker instead of --frontal")
	}
	a, b := siteOf(c.Args().Get(0)), siteOf(c.Args().Get(1))
	pair := &doctor.Pair{A: a, B: b}
	err := askAdmin(c, func(ctx context.Context, admin controlpb.AdminClient) error {
		m, err := admin.Decide(ctx, &controlpb.DecideRequest{Asker: a, Target: b})
		if err != nil {
			return err
		}
		plan, err := control.PlanFromPB(m)
		if err != nil {
			return err
		}
		pair.Plan = &plan
		r, err := admin.Status(ctx, &controlpb.StatusRequest{})
		if err != nil {
			return err
		}
		pair.Absent, pair.Store, err = absent(r.Json, a, b)
		return err
	})
	var mistake cli.ExitCoder
	if errors.As(err, &mistake) {
		return nil, err
	}
	if err != nil {
		pair.Err, pair.Asked = err.Error(), errors.Is(err, overlay.ErrUnknownSite)
	}
	return pair, nil
}

// siteOf returns the site that a word names, or that of the node.
func siteOf(word string) string {
	if node, err := overlay.ParseNodeID(word); err == nil {
		return string(node.Site)
	}
	return word
}

// absent lists those of the sites whose frontal has no session with the broker, and returns why the
// broker's store cannot be written.
func absent(status []byte, sites ...string) (away []string, storeFault string, err error) {
	var known struct {
		Store struct{ Error string }
		Sites []struct {
			Profile   struct{ Site string }
			Connected bool
		}
	}
	if err := json.Unmarshal(status, &known); err != nil {
		return nil, "", fmt.Errorf("the broker's status: %w", err)
	}
	for _, s := range known.Sites {
		if !s.Connected && slices.Contains(sites, s.Profile.Site) {
			away = append(away, s.Profile.Site)
		}
	}
	return away, known.Store.Error, nil
}

// terminal reports whether f is a terminal.
func terminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
