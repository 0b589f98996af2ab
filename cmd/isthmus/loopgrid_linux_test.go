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
	"github.com/isthmus-grid/isthmus/internal/testkit"
	"github.com/isthmus-grid/isthmus/overlay"
)

// What every command keeps to, whatever is wrong.
const (
	maxMessage    = 6 // lines
	maxColumns    = 100
	cellsAtATime  = 12
	goldenSilence = "testdata/silence"
)

// A cell is one command with a daemon in one state.
type cell struct {
	group, state   string
	cutOff         bool     // it runs where there is no network
	refused        bool     // the system makes no such place for this user
	form           []string // the command, as in helperCommands
	at             string   // what AT in it stands for
	words          []string
	stdout, stderr string
	status         int
	took, first    time.Duration // until the end, and until the first line
	shown, want    string        // as in testdata; no want: none is there
}

// faults returns what is wrong with what a cell says.
func (c *cell) faults() (all []string) {
	if c.refused {
		return nil
	}
	fault := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	said := waits.ReplaceAllString(c.stderr, "")
	lines := strings.Split(strings.TrimSuffix(said, "\n"), "\n")
	isDaemon := c.words[0] == "broker" // its errors are for a log: one line, with the fix
	if c.stdout == "" && c.stderr == "" {
		fault("it is silent")
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
		if testkit.Updating() {
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
		if !testkit.Updating() {
			break
		}
		var all strings.Builder
		for _, c := range cells {
			if c.refused {
				t.Fatalf("%s cannot be written by this user", file)
			}
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
	ctx, cancel := context.WithTimeout(g.t.Context(), 2*time.Minute)
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
	if c.refused = c.cutOff && cmd.Process == nil; c.refused {
		g.t.Logf("%q was not run without a network: %v", c.words, err)
		return
	}
	c.took = time.Since(start)
	note()
	c.stdout, c.stderr, c.status = stdout.text.String(), stderr.text.String(), cmd.ProcessState.ExitCode()
	if ctx.Err() != nil {
		c.stderr += fmt.Sprintf("isthmus was ended after %v: %v\n", c.took, err)
	}
	c.shown = g.show(c)
}

var (
	internalJob = regexp.MustCompile(`node:[a-z0-9]+:`)

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
	{regexp.MustCompile(`(unreachable: )?the control hand-shake did not end: the connection was closed without a message \(TLS: CLOSED\)`), "TLS: CLOSED"}, // at a later attempt
	{regexp.MustCompile(`cannot be looked up: .*?; check`), "cannot be looked up: CAUSE; check"},                                                           // depends on the machine's name servers
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
