package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/broker"
	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
	"github.com/isthmus-grid/isthmus/connhelper"
	"github.com/isthmus-grid/isthmus/frontal"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/daemon"
	"github.com/isthmus-grid/isthmus/internal/pki/ca"
	"github.com/isthmus-grid/isthmus/internal/support/bundle"
	"github.com/isthmus-grid/isthmus/internal/support/doctor"
	"github.com/isthmus-grid/isthmus/proxy"
)

// Limits of collecting: for the whole, one answer of a daemon, and the end of a log.
const (
	bundleTime = 20 * time.Second
	askTime    = 10 * time.Second
	maxLog     = 512 << 10
)

// settingsDir is where the daemons look for their settings.
const settingsDir = "/etc/isthmus"

// bundleCommand is "isthmus bundle".
func bundleCommand() *cli.Command {
	return &cli.Command{
		Name:  "bundle",
		Usage: "collect diagnostics for a developer into one file, without names",
		Description: "It collects the settings of this host's daemons (" + settingsDir + ", or --config), the doctor's report, the daemons' metrics\n" +
			"(metrics_listen), the ends of their logs, facts about the kernel, and, with an admin's certificate, the status of the\n" +
			"brokers and frontals that the settings name, or --broker and --frontal. A daemon that does not answer is noted.\n\n" +
			"Names of sites, users, projects, jobs and hosts, and addresses, become pseudonyms that are consistent within one bundle\n" +
			"only; keys, tokens and passwords are removed. Every known name is replaced everywhere; a name that only\n" +
			"a person can recognize may stay in a log line, so inspect the file before it leaves the site. manifest.json in\n" +
			"it lists what was replaced in each file.",
		Flags: append([]cli.Flag{
			&cli.StringSliceFlag{Name: "config", Usage: "settings `FILE` of a daemon of this host; may be repeated"},
			&cli.StringSliceFlag{Name: "log", Usage: "log `FILE` of a daemon that does not log to the journal; may be repeated"},
			&cli.StringFlag{Name: "out", Usage: "`FILE` to write, which must not exist yet (default: isthmus-bundle-TIME.tar.gz)"},
			&cli.BoolFlag{Name: "list", Usage: "write nothing; print what the bundle would contain and what would be replaced"},
			&cli.BoolFlag{Name: "keep-names", Usage: "do not replace names and addresses: for use inside the site"},
			&cli.BoolFlag{Name: "json", Usage: "print the manifest"},
		}, adminFlags()...),
		Action: runBundle,
	}
}

func runBundle(c *cli.Context) error {
	if err := cmdline.Words(c, "bundle", 0); err != nil {
		return err
	}
	if err := useContext(c); err != nil {
		return fmt.Errorf("bundle: %w", err)
	}
	for _, flag := range []string{"broker", "frontal"} {
		if c.IsSet(flag) {
			if err := hostPort(c, "bundle", flag); err != nil {
				return err
			}
		}
	}
	now := time.Now()
	out := c.String("out")
	if out == "" {
		out = "isthmus-bundle-" + now.UTC().Format("20060102T150405Z") + ".tar.gz"
	}
	// Collecting takes a while: check first that the file can be written.
	if !c.Bool("list") {
		if _, err := os.Lstat(out); err == nil {
			return fmt.Errorf("bundle: %s exists; choose another name with --out", out)
		}
		if err := takesFiles(filepath.Dir(out)); err != nil {
			return fmt.Errorf("bundle: %w; choose another folder with --out FILE", err)
		}
	}
	ctx, cancel := context.WithTimeout(c.Context, bundleTime)
	defer cancel()
	col := &collector{c: c, mask: bundle.NewMask(settingWords(), c.Bool("keep-names"))}
	if err := col.collect(ctx); err != nil {
		return err
	}
	slices.SortStableFunc(col.files, func(a, b bundle.File) int { return strings.Compare(a.Name, b.Name) })
	slices.SortStableFunc(col.gaps, func(a, b bundle.Gap) int { return strings.Compare(a.What, b.What) })
	b, err := bundle.Make(col.mask, now, col.files, col.gaps)
	if err != nil {
		return fmt.Errorf("bundle: %w", err)
	}
	if !c.Bool("list") {
		if err := writeBundle(out, b); err != nil {
			return fmt.Errorf("bundle: %w", err)
		}
	}
	if c.Bool("json") {
		return json.NewEncoder(c.App.Writer).Encode(b.Manifest)
	}
	for _, e := range b.Manifest.Files {
		fmt.Fprintf(c.App.Writer, "%-32s %8d bytes, %s\n", e.File, e.Bytes, replacedText(e.Replaced))
	}
	for _, g := range b.Manifest.Gaps {
		fmt.Fprintf(c.App.Writer, "without %s: %s\n", g.What, g.Why)
	}
	if !c.Bool("list") {
		fmt.Fprintf(c.App.Writer, "\n%s is written. Names are %s.\nInspect it before it leaves the site: tar xzf %s\n", out, b.Manifest.Names, out)
	}
	return nil
}

// writeBundle creates the file, readable only by its owner; it removes an incomplete one.
func writeBundle(file string, b *bundle.Bundle) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(b.Write(f), f.Close()); err != nil {
		os.Remove(file)
		return err
	}
	return nil
}

// replacedText returns the end of a line, such as "replaced: 3 host, 1 user".
func replacedText(counts map[string]int) string {
	var all []string
	for class, n := range counts {
		all = append(all, fmt.Sprintf("%d %s", n, class))
	}
	if len(all) == 0 {
		return "nothing replaced"
	}
	slices.Sort(all)
	return "replaced: " + strings.Join(all, ", ")
}

// settingKey matches the keys in a sample of settings.
var settingKey = regexp.MustCompile(`(?m)^\s*(?:- \{?)?#?([a-z][a-z0-9_]*):`)

// settingWords returns the keys of all settings and policies, which are not names.
func settingWords() []string {
	words := strings.Fields("mode contact zone rules name effect sites projects users jobs hours days techniques limits links rate bytes_month")
	for _, sample := range [][]byte{
		daemon.Sample[broker.Config]("isthmus-broker"), daemon.Sample[frontal.Config]("isthmus-frontal"),
		daemon.Sample[proxy.Config]("isthmus-proxy"), daemon.Sample[connhelper.Config]("isthmus-helper"),
	} {
		for _, key := range settingKey.FindAllSubmatch(sample, -1) {
			words = append(words, string(key[1]))
		}
	}
	return words
}

// collector collects texts, several concurrently.
type collector struct {
	c    *cli.Context
	mask *bundle.Mask // learns before anything runs concurrently

	mu    sync.Mutex // guards the fields below
	files []bundle.File
	gaps  []bundle.Gap
	names []string // identities of certificates: the mask learns them once nothing else runs
}

func (l *collector) add(name, from string, form bundle.Form, text []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.files = append(l.files, bundle.File{Name: name, From: from, Form: form, Text: text})
}

func (l *collector) gap(what string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gaps = append(l.gaps, bundle.Gap{What: what, Why: err.Error()})
}

// settingsOf is the part of one daemon's settings that the commands need: the addresses at which it
// is reached and where its certificate is.
type settingsOf struct {
	kind, file    string
	as            string // name in a bundle: "frontal", or "frontal-2"
	files         ca.Files
	metrics, page netip.AddrPort
	brokers       []string
	frontal, site string
}

// collect collects everything, each item within its own time limit.
func (l *collector) collect(ctx context.Context) error {
	creds, err := l.credentials()
	if err != nil {
		return err
	}
	l.add("version.txt", "this program", bundle.Facts, []byte(versions()))
	l.add("system.txt", "this host's kernel", bundle.Plain, []byte(systemFacts()))
	for _, host := range localNames() {
		l.mask.Learn(host[0], host[1])
	}
	all := l.settings()
	var asked sync.WaitGroup
	for _, s := range all {
		asked.Go(func() { l.certificate(s) })
		if s.metrics.IsValid() {
			asked.Go(func() { l.page(ctx, "metrics/"+s.as+".txt", s.metrics, "/metrics", bundle.Metrics) })
		}
		if s.page.IsValid() {
			asked.Go(func() { l.page(ctx, "status/"+s.as+"-page.json", s.page, "/status.json", bundle.JSON) })
		}
		if s.kind == "frontal" || s.kind == "helper" {
			asked.Go(func() { l.doctor(ctx, s) })
		}
	}
	l.statuses(ctx, &asked, creds, all)
	asked.Go(func() { l.logs(ctx, all) })
	defer cmdline.Waiting("what daemons, logs and the doctor say", "")()
	asked.Wait()
	for _, id := range l.names {
		l.mask.Learn(bundle.Name, id)
	}
	return nil
}

// credentials returns an admin's credentials, or nil.
func (l *collector) credentials() (*control.Credentials, error) {
	given := 0
	for _, name := range certFlags {
		if l.c.IsSet(name) {
			given++
		}
	}
	switch {
	case given == 3:
		creds, err := control.LoadCredentials(l.c.String("cert"), l.c.String("tls-key"), l.c.String("ca"))
		if err == nil {
			l.mask.Learn(bundle.User, creds.Identity().String())
		}
		return creds, err
	case given > 0 || l.c.IsSet("broker") || l.c.IsSet("frontal"):
		return nil, cmdline.Usage("bundle: to request a status give --cert, --tls-key and --ca with an admin's certificate (isthmus ca issue admin NAME)")
	}
	return nil, nil
}

// settings reads the settings of this host's daemons.
func (l *collector) settings() (all []settingsOf) {
	files := fullNames(l.c.StringSlice("config"))
	if len(files) == 0 {
		for _, kind := range []string{"broker", "frontal", "proxy", "helper", "policy"} {
			file := filepath.Join(settingsDir, kind+".yaml")
			if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
				files = append(files, file)
			}
		}
		if len(files) == 0 {
			l.gap("settings", fmt.Errorf("there are none in %s; name the files with --config", settingsDir))
		}
	}
	seen := map[string]int{}
	for _, file := range files {
		text, err := readBounded(file)
		if err != nil {
			l.gap("settings "+file, err)
			continue
		}
		kind, err := kindOf(fileKinds(), file, text)
		if err != nil {
			l.gap("settings "+file, err)
			continue
		}
		seen[kind.name]++
		as := kind.name
		if n := seen[kind.name]; n > 1 {
			as = fmt.Sprintf("%s-%d", as, n)
		}
		l.add("settings/"+as+".yaml", file, bundle.Settings, text)
		var found strings.Builder
		for _, f := range kind.check(file, text) {
			if f.Severity == cmdline.Noted {
				continue // the settings are in the bundle
			}
			fmt.Fprintln(&found, f)
		}
		if found.Len() > 0 {
			l.add("settings/"+as+"-check.txt", "isthmus check "+file, bundle.Plain, []byte(found.String()))
		}
		if s, err := parseSettings(kind.name, file, text); err == nil { // else the findings say why
			s.as = as
			all = append(all, s)
		}
	}
	return all
}

// fullNames returns the files with absolute paths. A name such as alice.log is recognised only as a
// part of a path, and names in settings are relative to them.
func fullNames(files []string) (all []string) {
	for _, file := range files {
		if full, err := filepath.Abs(file); err == nil {
			file = full
		}
		all = append(all, file)
	}
	return all
}

// parseSettings parses a daemon's settings, whose files need not exist yet.
func parseSettings(kind, file string, text []byte) (s settingsOf, err error) {
	filesOf := func(cert, key, root daemon.Path) ca.Files {
		return ca.Files{Cert: string(cert), Key: string(key), CA: string(root)}
	}
	switch kind {
	case "broker":
		var cfg broker.Config
		cfg, err = daemon.Parse[broker.Config](file, text)
		s.metrics, s.page, s.brokers = cfg.MetricsListen, cfg.StatusListen, []string{hostAddress(cfg.Listen).String()}
		s.files = filesOf(cfg.TLS.Cert, cfg.TLS.Key, cfg.TLS.CA)
	case "frontal":
		var cfg frontal.Config
		cfg, err = daemon.Parse[frontal.Config](file, text)
		s.metrics, s.brokers, s.frontal, s.site = cfg.MetricsListen, cfg.Broker, hostAddress(cfg.Listen).String(), cfg.Site
		s.files = filesOf(cfg.TLS.Cert, cfg.TLS.Key, cfg.TLS.CA)
	case "proxy":
		var cfg proxy.Config
		cfg, err = daemon.Parse[proxy.Config](file, text)
		s.metrics, s.brokers = cfg.MetricsListen, cfg.Broker
		s.files = filesOf(cfg.TLS.Cert, cfg.TLS.Key, cfg.TLS.CA)
	case "helper":
		var cfg connhelper.Config
		cfg, err = daemon.Parse[connhelper.Config](file, text)
		s.metrics, s.frontal = cfg.MetricsListen, cfg.Frontal
		s.files = filesOf(cfg.TLS.Cert, cfg.TLS.Key, cfg.TLS.CA)
	default:
		return s, fmt.Errorf("%s: not the settings of a daemon", file)
	}
	s.kind, s.file = kind, file
	return s, err
}

// hostAddress returns the address at which this host itself reaches a listener on a.
func hostAddress(a netip.AddrPort) netip.AddrPort {
	switch {
	case !a.Addr().IsUnspecified():
		return a
	case a.Addr().Is4():
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), a.Port())
	}
	return netip.AddrPortFrom(netip.IPv6Loopback(), a.Port())
}

// statuses queries the brokers and frontals named by flags and settings, each once.
func (l *collector) statuses(ctx context.Context, asked *sync.WaitGroup, creds *control.Credentials, all []settingsOf) {
	if creds == nil {
		l.gap("status", errors.New("it needs an admin's certificate (isthmus login, or --cert, --tls-key, --ca)"))
		return
	}
	brokers, frontals := []string{l.c.String("broker")}, []string{l.c.String("frontal")}
	for _, s := range all {
		brokers, frontals = append(brokers, s.brokers...), append(frontals, s.frontal)
	}
	for role, addrs := range map[control.Role][]string{control.RoleBroker: brokers, control.RoleFrontal: frontals} {
		n := 0
		for i, addr := range addrs {
			if addr == "" || slices.Contains(addrs[:i], addr) {
				continue
			}
			n++
			name := fmt.Sprintf("status/%v-%d.json", role, n)
			asked.Go(func() {
				text, err := askStatus(ctx, creds, role, addr)
				if err != nil {
					l.gap(fmt.Sprintf("status of the %v at %s", role, addr), err)
					return
				}
				l.add(name, addr, bundle.JSON, text)
			})
		}
	}
}

func (l *collector) doctor(ctx context.Context, s settingsOf) {
	look, err := subject(s.file)
	if err != nil {
		l.gap("doctor for "+s.file, err)
		return
	}
	text, err := json.Marshal(doctor.Conclude(doctor.Look(ctx, look)))
	if err != nil {
		l.gap("doctor for "+s.file, err)
		return
	}
	l.add("doctor/"+s.as+".json", "isthmus doctor --json --config "+s.file, bundle.JSON, text)
}
