package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/isthmus-grid/isthmus/cmd/internal/cmdtest"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/daemon/daemontest"
	"github.com/isthmus-grid/isthmus/internal/pki/ca"
	"github.com/isthmus-grid/isthmus/internal/sleep"
	"github.com/isthmus-grid/isthmus/internal/testload"
	"github.com/isthmus-grid/isthmus/launch/nodeservice"
	"github.com/isthmus-grid/isthmus/overlay"
)

// What every command keeps to, whatever is wrong.
const (
	answerBound   = 5 * time.Second // to an answer, or to what the command waits for
	maxMessage    = 6               // lines
	maxColumns    = 100
	slowness      = 300 * time.Millisecond // each way, of what a slow daemon sends and gets
	cellsAtATime  = 12
	goldenSilence = "testdata/silence"
)

// TestNothingIsSilent runs each command against daemons that are absent, frozen, refusing and slow:
// each answers soon, or says what it waits for, in a few short lines with a next step. What it says is
// in testdata; -update writes that.
func TestNothingIsSilent(t *testing.T) {
	g := newLoopGrid(t)
	ofHelper := g.helpers()
	ofBroker := g.brokers()
	ofFrontal := g.frontals()
	var cells []*cell
	for _, group := range []struct {
		name     string
		at       map[string]string
		commands [][]string
	}{
		{"helper", ofHelper.byHelper, helperCommands},
		{"frontal", ofHelper.byFrontal, helperCommands},
		{"broker", ofHelper.byBroker, helperCommands},
		{"broker-admin", ofBroker, brokerCommands},
		{"frontal-admin", ofFrontal, frontalCommands},
		{"proxy", map[string]string{"absent": ofHelper.withoutProxy, "frozen": g.withFrozenProxy()}, [][]string{{"ps", "--helper", "AT"}, {"kill", "--helper", "AT", "nojob"}}},
		{"doctor", map[string]string{"frozen": filepath.Join(g.dir, "helper-hfrozen-n1.yaml")}, [][]string{{"doctor", "--config", "AT"}}},
		{"drain", g.drains(ofHelper), [][]string{{"drain", "--socket", "AT"}}},
	} {
		for state, at := range group.at {
			for _, words := range group.commands {
				cells = append(cells, &cell{group: group.name, state: state, form: words, at: at})
			}
		}
	}
	golden := readGolden(t, cells)
	left := cells
	for again := 0; ; again++ {
		g.runAll(left)
		left = slices.DeleteFunc(slices.Clone(left), func(c *cell) bool { return len(c.faults()) == 0 })
		if len(left) == 0 || !testload.Again(again) { // a daemon that gets no processor looks like one that is stopped
			break
		}
	}
	golden.conclude(t, cells)
}

// The commands; AT stands for the daemon's address or socket.
var (
	helperCommands = [][]string{
		{"hosts", "--helper", "AT"},
		{"ps", "--helper", "AT"},
		{"top", "--once", "--helper", "AT"},
		{"kill", "--helper", "AT", "nojob"},
		{"run", "--helper", "AT", "-n", "1", "hostname"},
		{"run", "--helper", "AT", "-n", "1", "--dry-run", "hostname"},
	}
	brokerCommands = [][]string{
		{"status", "--broker", "AT", "ADMIN"},
		{"top", "--once", "--helper", "none", "--broker", "AT", "ADMIN"},
		{"plan", "--broker", "AT", "ADMIN", "here", "there"},
		{"policy", "explain", "--broker", "AT", "ADMIN", "--from", "here", "--to", "there", "--user", "alice"},
		{"ca", "enroll", "--broker", "AT", "--token", "TOKEN", "--out", "FOLDER"},
		{"ca", "renew", "--broker", "AT", "OWN"},
		{"ca", "revoke", "--dir", "CA", "--broker", "AT", "ADMIN", "frontal", "nobody"},
		{"doctor", "--broker", "AT", "ADMIN", "here", "there"},
		{"bundle", "--list", "--log", "/dev/null", "--broker", "AT", "ADMIN"},
	}
	frontalCommands = [][]string{
		{"status", "--frontal", "AT", "ADMIN"},
		{"ca", "renew", "--frontal", "AT", "NODE"},
	}
)

// A cell is one command with a daemon in one state.
type cell struct {
	group, state   string
	cutOff         bool     // it runs where there is no network
	form           []string // the command, as in helperCommands
	at             string   // what AT in it stands for
	words          []string
	stdout, stderr string
	status         int
	took, first    time.Duration // until the end, and until the first line
	shown, want    string        // as in testdata; no want: none is there
}

// faults returns what is wrong with a cell.
func (c *cell) faults() (all []string) {
	fault := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	said := waits.ReplaceAllString(c.stderr, "")
	lines := strings.Split(strings.TrimSuffix(said, "\n"), "\n")
	isDaemon := c.words[0] == "broker" // its errors are for a log: one line, with the fix
	isLate := func(took time.Duration) bool {
		return took > slowed*answerBound && took > testload.Within(slowed*answerBound)
	}
	if c.stdout == "" && c.stderr == "" {
		fault("it is silent")
	}
	if isLate(c.first) {
		fault("it said nothing for %v", c.first)
	}
	if said == c.stderr && c.words[0] != "doctor" && isLate(c.took) {
		fault("it took %v, and does not say what it waited for", c.took)
	}
	if len(lines) > maxMessage {
		fault("%d lines, want %d at most", len(lines), maxMessage)
	}
	for _, line := range lines {
		if len(line) > maxColumns && !isDaemon {
			fault("a line of %d columns", len(line))
		}
	}
	if c.status != 0 && said != "" && !isDaemon && !strings.Contains(said, "\n  next:    ") {
		fault("it names no next step")
	}
	if internalJob.MatchString(c.stdout + c.stderr) {
		fault("it shows an internal job")
	}
	if c.want != "" && c.shown != c.want {
		fault("want\n%s", c.want)
	}
	return all
}

// golden is what is in testdata, a file for each daemon and state.
type golden struct{ files map[string][]*cell }

// section begins a cell in a file.
var section = regexp.MustCompile(`(?m)^\$ isthmus `)

// readGolden reads what the cells are to say.
func readGolden(t *testing.T, cells []*cell) golden {
	t.Helper()
	g := golden{map[string][]*cell{}}
	for _, c := range cells {
		file := filepath.Join(goldenSilence, c.group+"-"+c.state+".txt")
		g.files[file] = append(g.files[file], c)
	}
	for file, cells := range g.files {
		if daemontest.Updating() {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatalf("%v; write it with -update", err)
		}
		begins := section.FindAllIndex(text, -1)
		if len(begins) != len(cells) {
			t.Fatalf("%s has %d commands, and %d are run; write it with -update", file, len(begins), len(cells))
		}
		for i, c := range cells {
			end := len(text)
			if i+1 < len(begins) {
				end = begins[i+1][0]
			}
			c.want = string(text[begins[i][0]:end])
		}
	}
	return g
}

// conclude reports what is wrong with the cells, and with -update writes the files.
func (g golden) conclude(t *testing.T, cells []*cell) {
	t.Helper()
	for _, c := range cells {
		for _, text := range c.faults() {
			t.Errorf("%s %s: %s; got\n%s%s", c.group, c.state, text, c.shown, c.stderr)
		}
	}
	for file, cells := range g.files {
		if !daemontest.Updating() {
			break
		}
		var all strings.Builder
		for _, c := range cells {
			all.WriteString(c.shown)
		}
		if err := errors.Join(os.MkdirAll(goldenSilence, 0o755), os.WriteFile(file, []byte(all.String()), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
}

// loopGrid is a grid of real daemons on the loopback, with some in each state.
type loopGrid struct {
	t      *testing.T
	dir    string // with short names: of sockets
	ca     *ca.CA
	issued map[control.Identity]ca.Files
	next   int // the last byte of the next daemon's address
	admin  ca.Files
	broker *daemontest.Process
	at     string // of the broker
}

func newLoopGrid(t *testing.T) *loopGrid {
	t.Helper()
	dir, err := os.MkdirTemp("", "silence-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	g := &loopGrid{t: t, dir: dir, next: 1, issued: map[control.Identity]ca.Files{}}
	if g.ca, err = ca.Create(filepath.Join(dir, "ca"), "loop", time.Hour); err != nil {
		t.Fatal(err)
	}
	g.admin = g.files(control.Identity{Role: control.RoleAdmin, Name: "ada"})
	g.broker, g.at = g.startBroker("b1")
	return g
}

// files issues a certificate, once.
func (g *loopGrid) files(id control.Identity) ca.Files {
	g.t.Helper()
	if f, is := g.issued[id]; is {
		return f
	}
	f, err := g.ca.Write(filepath.Join(g.dir, "certs"), id, time.Now().Add(time.Hour))
	if err != nil {
		g.t.Fatal(err)
	}
	g.issued[id] = f
	return f
}

// start starts a daemon with settings, and returns it when it is ready.
func (g *loopGrid) start(kind string, id control.Identity, settings map[string]any) *daemontest.Process {
	g.t.Helper()
	f := g.files(id)
	settings["tls"] = map[string]any{"cert": f.Cert, "key": f.Key, "ca": f.CA}
	text, err := yaml.Marshal(settings)
	if err != nil {
		g.t.Fatal(err)
	}
	file := filepath.Join(g.dir, strings.NewReplacer(" ", "-", "/", "-").Replace(id.String())+".yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		g.t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], kind, "--config", file)
	cmd.Env = cmdtest.Environment()
	cmd.Dir = g.dir
	return daemontest.Start(g.t, cmd)
}

// startBroker starts a broker that issues certificates.
func (g *loopGrid) startBroker(name string) (*daemontest.Process, string) {
	g.t.Helper()
	cert, key, err := g.ca.WriteIssuer(filepath.Join(g.dir, "issuer-"+name), ca.OnlineRoles, time.Now().Add(time.Hour))
	if err != nil {
		g.t.Fatal(err)
	}
	p := g.start("broker", control.Identity{Role: control.RoleBroker, Name: name}, map[string]any{
		"listen": "127.0.0.1:0", "allow_loopback": true, "enrol": map[string]any{"cert": cert, "key": key},
		"store": filepath.Join(g.dir, name+".db"), "admin_socket": filepath.Join(g.dir, name+".admin"),
	})
	return p, p.Facts["listen"]
}

// startSite starts a site's frontal and returns it with its address.
func (g *loopGrid) startSite(site, broker string) (*daemontest.Process, string) {
	g.t.Helper()
	p := g.start("frontal", control.Identity{Role: control.RoleFrontal, Site: overlay.SiteID(site)}, map[string]any{
		"site": site, "listen": "127.0.0.1:0", "broker": broker, "patience": "0s", "policy": g.policy(), "private": []string{"127.0.0.0/8"},
		"profile": map[string]any{"inbound": "none", "egress": "any"}, "admin_socket": filepath.Join(g.dir, site+".admin"),
	})
	return p, p.Facts["listen"]
}

// policy returns the file of a policy that permits every link.
func (g *loopGrid) policy() string {
	file := filepath.Join(g.dir, "policy.yaml")
	if err := os.WriteFile(file, []byte("{contact: a@site.example, rules: [{name: all, effect: allow}]}\n"), 0o600); err != nil {
		g.t.Fatal(err)
	}
	return file
}

// startHelper starts the helper of a site's node n1, which offers nothing, and returns it with its socket.
func (g *loopGrid) startHelper(site, frontal string) (*daemontest.Process, string) {
	g.t.Helper()
	socket := filepath.Join(g.dir, site+".sock")
	p := g.start("helper", control.Identity{Role: control.RoleHelper, Site: overlay.SiteID(site), Name: "n1"}, map[string]any{
		"frontal": frontal, "socket": socket, "allow_loopback": true, "private": []string{"127.0.0.0/8"},
		"gate": map[string]any{"store": filepath.Join(g.dir, "store-"+site)}, "admin_socket": filepath.Join(g.dir, site+"-n1.admin"),
	})
	return p, socket
}

// onLoop has the helper and the frontal of a site be at work.
func (g *loopGrid) startBoth(site, broker, frontal string) (f *daemontest.Process, socket string) {
	g.t.Helper()
	f, at := g.startSite(site, broker)
	if frontal == "" {
		frontal = at
	}
	h, socket := g.startHelper(site, frontal)
	h.Until("msg=joined")
	return f, socket
}

// sockets are helpers by the state of a daemon: of their own, of their frontals, and of the brokers of
// these. withoutProxy knows a node whose service it reaches only over a proxy, of which there is
// none.
type sockets struct {
	byHelper, byFrontal, byBroker map[string]string
	withoutProxy                  string
}

// helpers starts those.
func (g *loopGrid) helpers() sockets {
	g.t.Helper()
	_, good := g.startBoth("here", g.at, "")
	g.startBoth("there", g.at, "")
	stopped, frozen := g.startHelper("hfrozen", g.nowhere())
	stopped.Signal(syscall.SIGSTOP)
	_, alone := g.startBoth("alone", g.nowhere(), "")
	s := sockets{withoutProxy: good, byHelper: map[string]string{
		"absent": filepath.Join(g.dir, "none.sock"), "frozen": frozen,
		"refusing": g.unixRelay("hrefusing", nil), "slow": g.unixRelay("hslow", &alone),
	}}

	_, absent := g.startHelper("fabsent", g.nowhere())
	stopped, frozen = g.startBoth("ffrozen", g.nowhere(), "")
	stopped.Signal(syscall.SIGSTOP)
	refuser, at := g.startSite("frefusing", g.nowhere())
	_ = refuser
	_, refusing := g.startHelper("ffor", at) // another site's
	_, slowAt := g.startSite("fslow", g.nowhere())
	h, slow := g.startHelper("fslow", g.relay(slowAt))
	h.Until("msg=joined")
	s.byFrontal = map[string]string{"absent": absent, "frozen": frozen, "refusing": refusing, "slow": slow}

	_, absent = g.startBoth("babsent", g.nowhere(), "")
	frozenBroker, frozenAt := g.startBroker("b2")
	_, frozen = g.startBoth("bfrozen", frozenAt, "")
	frozenBroker.Until(`peer="frontal bfrozen"`)
	frozenBroker.Signal(syscall.SIGSTOP)
	_, refusing = g.startBoth("brefusing", g.closing(), "")
	other, otherAt := g.startBroker("b4")
	_, slow = g.startBoth("bslow", g.relay(otherAt), "")
	other.Until(`peer="frontal bslow"`)
	s.byBroker = map[string]string{"absent": absent, "frozen": frozen, "refusing": refusing, "slow": slow}
	return s
}

// withFrozenProxy returns the socket of a helper whose only way to another site is over a proxy that is
// stopped.
func (g *loopGrid) withFrozenProxy() string {
	g.t.Helper()
	broker, at := g.startBroker("b6")
	_, socket := g.startBoth("pfrozen", at, "")
	g.startBoth("pother", at, "")
	listen := g.nowhere()
	p := g.start("proxy", control.Identity{Role: control.RoleProxy, Name: "p1"}, map[string]any{"listen": []string{listen}, "advertise": listen, "broker": at})
	broker.Until(`peer="proxy p1"`)
	p.Signal(syscall.SIGSTOP)
	return socket
}

// brokers returns addresses of brokers by state.
func (g *loopGrid) brokers() map[string]string {
	g.t.Helper()
	p, frozen := g.startBroker("b3")
	p.Signal(syscall.SIGSTOP)
	return map[string]string{"absent": g.nowhere(), "frozen": frozen, "refusing": g.closing(), "slow": g.relay(g.at), "denying": g.at}
}

// frontals returns addresses of frontals by state.
func (g *loopGrid) frontals() map[string]string {
	g.t.Helper()
	p, frozen := g.startSite("afrozen", g.nowhere())
	p.Signal(syscall.SIGSTOP)
	other, otherAt := g.startBroker("b5")
	_, good := g.startSite("agood", otherAt)
	other.Until(`peer="frontal agood"`)
	return map[string]string{"absent": g.nowhere(), "frozen": frozen, "refusing": g.closing(), "slow": g.relay(good)}
}

// drains returns admin sockets of daemons by state.
func (g *loopGrid) drains(sockets) map[string]string {
	return map[string]string{"absent": filepath.Join(g.dir, "none.admin"), "frozen": filepath.Join(g.dir, "b3.admin")}
}

// nowhere returns an address at which nothing listens: on a host of its own, so that no daemon gets
// the port.
func (g *loopGrid) nowhere() string {
	g.next++
	return fmt.Sprintf("127.0.9.%d:4430", g.next)
}

// closing returns the address of a listener that closes every connection.
func (g *loopGrid) closing() string {
	return g.serve("tcp", "127.0.0.1:0", func(c net.Conn) { c.Close() })
}

// relay returns an address at which the daemon at another one is slow.
func (g *loopGrid) relay(to string) string {
	return g.serve("tcp", "127.0.0.1:0", func(c net.Conn) { delay(g.t.Context(), c, "tcp", to) })
}

// unixRelay returns the socket of a helper that is slow, or without one of a helper that closes every
// connection.
func (g *loopGrid) unixRelay(name string, to *string) string {
	socket := filepath.Join(g.dir, name+".sock")
	g.serve("unix", socket+nodeservice.DoorSuffix, func(c net.Conn) {
		if to == nil {
			c.Close()
			return
		}
		delay(g.t.Context(), c, "unix", *to+nodeservice.DoorSuffix)
	})
	return socket
}

// serve calls f for each connection, until the test ends.
func (g *loopGrid) serve(network, at string, f func(net.Conn)) string {
	g.t.Helper()
	ln, err := net.Listen(network, at)
	if err != nil {
		g.t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return // closed
			}
			serving.Go(func() { f(c) })
		}
	})
	g.t.Cleanup(func() {
		ln.Close()
		serving.Wait()
	})
	return ln.Addr().String()
}

// delay carries bytes between a connection and an address, each slowness after it came, until either
// end closes or ctx ends.
func delay(ctx context.Context, c net.Conn, network, to string) {
	defer c.Close()
	d, err := net.Dial(network, to)
	if err != nil {
		return
	}
	defer d.Close()
	defer context.AfterFunc(ctx, func() { c.Close(); d.Close() })()
	var both sync.WaitGroup
	both.Go(func() { delayed(ctx, d, c) })
	both.Go(func() { delayed(ctx, c, d) })
	both.Wait()
}

// delayed copies until from ends, and closes to.
func delayed(ctx context.Context, to, from net.Conn) {
	type chunk struct {
		data []byte
		due  time.Time
	}
	chunks := make(chan chunk, 1024)
	var writing sync.WaitGroup
	writing.Go(func() {
		defer to.Close()
		for c := range chunks {
			if sleep.For(ctx, time.Until(c.due)) != nil {
				continue
			}
			to.Write(c.data) // an error ends the reader, too
		}
	})
	for {
		data := make([]byte, 64<<10)
		n, err := from.Read(data)
		if n > 0 {
			chunks <- chunk{data[:n], time.Now().Add(slowness)}
		}
		if err != nil {
			break
		}
	}
	close(chunks)
	writing.Wait()
}

// words fills in a command.
func (g *loopGrid) words(words []string, at, state string) []string {
	g.t.Helper()
	credentials := func(f ca.Files) []string { return []string{"--cert", f.Cert, "--tls-key", f.Key, "--ca", f.CA} }
	var all []string
	for _, w := range words {
		switch w {
		case "AT":
			all = append(all, at)
		case "ADMIN":
			f := g.admin
			if state == "denying" {
				f = g.files(control.Identity{Role: control.RoleUser, Name: "mallory"})
			}
			all = append(all, credentials(f)...)
		case "OWN":
			all = append(all, credentials(g.files(control.Identity{Role: control.RoleFrontal, Site: "own" + overlay.SiteID(state)}))...)
		case "NODE":
			all = append(all, credentials(g.files(control.Identity{Role: control.RoleHelper, Site: "agood", Name: state}))...)
		case "CA":
			all = append(all, filepath.Join(g.dir, "ca"))
		case "TOKEN":
			text, err := g.ca.Token(ca.Token{Identity: "proxy " + state, Uses: 1, Valid: 3600, Expires: time.Now().Add(time.Hour).UnixMilli()}, time.Now())
			if err != nil {
				g.t.Fatal(err)
			}
			all = append(all, text)
		case "FOLDER":
			all = append(all, filepath.Join(g.dir, "enrolled-"+state))
		default:
			all = append(all, w)
		}
	}
	return all
}

// runAll runs the cells, several at a time.
func (g *loopGrid) runAll(cells []*cell) {
	var running sync.WaitGroup
	slots := make(chan struct{}, cellsAtATime)
	for _, c := range cells {
		c.words = g.words(c.form, c.at, c.state)
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			g.run(c)
		})
	}
	running.Wait()
}

// firstWrite notes when something is written.
type firstWrite struct {
	text bytes.Buffer
	note func()
}

// Write implements io.Writer.
func (w *firstWrite) Write(p []byte) (int, error) {
	w.note()
	return w.text.Write(p)
}

// run runs a cell.
func (g *loopGrid) run(c *cell) {
	ctx, cancel := context.WithTimeout(g.t.Context(), testload.Within(30*time.Second))
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], c.words...)
	cmd.Dir, cmd.Env = g.dir, cmdtest.Environment()
	if c.cutOff {
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}},
		}
	}
	start := time.Now()
	note := sync.OnceFunc(func() { c.first = time.Since(start) })
	stdout, stderr := &firstWrite{note: note}, &firstWrite{note: note}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	err := cmd.Run()
	c.took = time.Since(start)
	note()
	c.stdout, c.stderr, c.status = stdout.text.String(), stderr.text.String(), cmd.ProcessState.ExitCode()
	if ctx.Err() != nil {
		c.stderr += fmt.Sprintf("isthmus was ended after %v: %v\n", c.took, err)
	}
	c.shown = g.show(c)
}

var (
	internalJob = regexp.MustCompile(`gate:[a-z0-9]+:`)

	reason  = regexp.MustCompile(`(missing|known|no list of hosts): .*`)
	waits   = regexp.MustCompile(`(?m)^isthmus: waiting for .*\n`)
	wrapped = regexp.MustCompile(`\n(?: {11}| {4})`)
)

var changing = []struct {
	what *regexp.Regexp
	as   string
}{
	{waits, ""},    // depends on how busy the machine is
	{wrapped, " "}, // depends on the length of names
	{regexp.MustCompile(`(unreachable: )?TLS: (EOF|read tcp .*reset by peer)`), "TLS: CLOSED"},
	{regexp.MustCompile(`\b127\.0\.[09]\.\d+:\d+`), "ADDRESS"},
	{regexp.MustCompile(`\b\d\d:\d\d:\d\d\b`), "TIME"},
	{regexp.MustCompile(`-[0-9a-f]{32}\b`), "-ID"},
	{regexp.MustCompile(`\b[0-9.]+m?s\b`), "DURATION"},
	{regexp.MustCompile(`list [0-9]+`), "list N"},
	{regexp.MustCompile(`\b20\d\d-\d\d-\d\dT\S+Z`), "DATE"},
	{regexp.MustCompile(`\b[0-9hm]+m[0-9]+s\b`), "DURATION"},
	{regexp.MustCompile(`\b[0-9a-f]{64}\b`), "FINGERPRINT"},
}

// show returns the cell as it is in testdata.
func (g *loopGrid) show(c *cell) string {
	clean := func(text string) string {
		text = strings.ReplaceAll(text, g.dir+"/", "")
		for _, r := range changing {
			text = r.what.ReplaceAllString(text, r.as)
		}
		if c.state == "frozen" {
			text = reason.ReplaceAllString(text, "$1: REASON") // the end of the session, or of a later attempt
		}
		return text
	}
	words := clean(strings.Join(c.words, " "))
	if c.group == "doctor" {
		words += "\n" + clean(regexp.MustCompile(`(?m)^FAIL  local: .*`).FindString(c.stdout))
	}
	words = regexp.MustCompile(`isthmus-token-\S+`).ReplaceAllString(words, "TOKEN")
	text := fmt.Sprintf("$ isthmus %s\n%s", words, clean(c.stderr))
	if c.status == 0 {
		return text + "(answered)\n\n"
	}
	return text + fmt.Sprintf("(status %d)\n\n", c.status)
}
