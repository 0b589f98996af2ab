//go:build system

package admin

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gopkg.in/yaml.v3"

	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// Where the services of compose.yaml run in the lab, and what addresses of the file are there.
const composeSites = `
wan: {rtt: 4ms}
sites:
  - {name: sitea, preset: no-route/stateful, nodes: [n1, n2]}
  - {name: siteb, preset: no-route/stateful, nodes: [n1, n2]}
  - {name: pub, preset: public, nodes: [broker, p1]}
`

var composeHosts = map[string]struct{ host, address string }{
	"broker": {"pub/broker", "172.30.0.2"}, "proxy": {"pub/p1", "172.30.0.3"},
	"frontal-a": {"sitea/gw", "172.30.1.2"}, "a-n1": {"sitea/n1", "172.30.1.11"}, "a-n2": {"sitea/n2", "172.30.1.12"},
	"frontal-b": {"siteb/gw", "172.30.2.2"}, "b-n1": {"siteb/n1", "172.30.2.11"}, "b-n2": {"siteb/n2", "172.30.2.12"},
}

// composeUser is whom ./prepare names when root runs it.
const composeUser = 65534

// composeFile is what of a compose file the test carries out. Another key is a fault.
type composeFile struct {
	Name     string
	Daemon   any `yaml:"x-daemon"`
	Services map[string]composeService
	Networks map[string]struct {
		Internal bool
		IPAM     any `yaml:"ipam"`
	}
}

type composeService struct {
	Image, User, Restart string
	CapDrop              []string `yaml:"cap_drop"`
	SecurityOpt          []string `yaml:"security_opt"`
	ReadOnly             bool     `yaml:"read_only"`
	Sysctls              map[string]string
	Command              []string
	Environment          map[string]string
	Volumes              []string
	Networks             map[string]struct {
		Address string `yaml:"ipv4_address"`
	}
	DependsOn []string `yaml:"depends_on"`
}

// composed is the grid of compose.yaml, each of whose services runs in the root file system of its
// image on a host of a lab.
type composed struct {
	*day
	file     composeFile
	machines map[string]*machine
	work     sync.WaitGroup

	mu   sync.Mutex
	logs map[string]*bytes.Buffer
}

// The grid that compose.yaml describes comes up from nothing but ./prepare, and runs a job over both
// sites.
func TestCompose(t *testing.T) {
	t.Parallel() // most of it is waiting
	labtest.NeedLab(t)
	if !labtest.IsRoot(t) {
		t.Skip("services of other users take root")
	}
	examples := labtest.Program(t, "-lab")
	ctx, cancel := context.WithTimeoutCause(context.Background(), labtest.PatienceFor(t, labtest.Patience), fmt.Errorf("%s: not done in time", t.Name()))
	defer cancel()
	spec, err := lab.Parse(t.Name(), []byte(composeSites))
	if err != nil {
		t.Fatal(err)
	}
	l, err := lab.Up(ctx, spec)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}()
	dir, err := os.MkdirTemp(lab.Dir(), "compose-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	c := &composed{
		day:      &day{World: &labtest.World{T: t, Ctx: ctx}, lab: l, dir: dir, root: true},
		machines: map[string]*machine{}, logs: map[string]*bytes.Buffer{},
	}
	defer c.end()
	program := c.image()
	c.prepare(program)
	for _, name := range slices.Sorted(maps.Keys(c.file.Services)) {
		c.container(name, program)
	}
	c.machines["a-n1"].program(examples, "/programs/isthmus-lab")
	for _, other := range []string{"a-n2", "b-n1", "b-n2"} {
		c.machines[other].program(examples, "/programs/isthmus-lab")
	}
	defer c.work.Wait()
	defer cancel()
	for name := range c.file.Services {
		c.work.Go(func() { c.serve(name) })
	}
	last := ""
	c.Until("all nodes to be listed", func() bool {
		last, _ = c.isthmus("a-n1", "hosts")
		return strings.Count(last, " up ") == 4
	}, func() string { return last + c.allLogs() })
	out, err := c.isthmus("a-n1", "run", "--hosts", "n1@sitea:2,n2@siteb:2", "--installed", "/programs/isthmus-lab", "example", "is", "--class", "S")
	if err != nil || !strings.Contains(out, "SUCCESSFUL") {
		t.Errorf("%v\n%s\n%s", err, out, c.allLogs())
	}
}

// image returns the program of the image isthmus: of the one that deploy/pack has made, if there are
// packages, or what would be in it.
func (c *composed) image() string {
	t := c.T
	t.Helper()
	folder := os.Getenv(packagesKey)
	if folder == "" {
		return labtest.Program(t, "")
	}
	found, err := filepath.Glob(filepath.Join(folder, "isthmus_*.oci.tar"))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: want one image isthmus there, found %q (%v)", folder, found, err)
	}
	files := map[string][]byte{}
	untar(t, found[0], func(name string, r io.Reader, _ os.FileMode) {
		files[name], err = io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
	})
	var manifest []struct{ Layers []string }
	if err := json.Unmarshal(files["manifest.json"], &manifest); err != nil || len(manifest) != 1 || len(manifest[0].Layers) != 1 {
		t.Fatalf("%s: %v, %+v", found[0], err, manifest)
	}
	unzip, err := gzip.NewReader(bytes.NewReader(files[manifest[0].Layers[0]]))
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(c.dir, "image")
	for layer := tar.NewReader(unzip); ; {
		h, err := layer.Next()
		if err != nil {
			t.Fatalf("%s has no /usr/bin/isthmus: %v", found[0], err)
		}
		if path.Clean("/"+h.Name) != "/usr/bin/isthmus" {
			continue
		}
		text, err := io.ReadAll(layer)
		if err == nil {
			err = os.WriteFile(program, text, h.FileInfo().Mode().Perm())
		}
		if err != nil {
			t.Fatal(err)
		}
		return program
	}
}

func untar(t *testing.T, file string, each func(name string, r io.Reader, mode os.FileMode)) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for files := tar.NewReader(f); ; {
		h, err := files.Next()
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		each(h.Name, files, h.FileInfo().Mode())
	}
}

// variable is one of a compose file.
var variable = regexp.MustCompile(`\$\{(\w+):[?-]([^}]*)\}`)

// prepare runs ./prepare as its user does, with the addresses of the lab, and reads compose.yaml.
func (c *composed) prepare(program string) {
	t := c.T
	t.Helper()
	var addresses []string
	for _, h := range composeHosts {
		addresses = append(addresses, h.address, c.lab.Host(h.host).Addr().String())
	}
	here := strings.NewReplacer(addresses...).Replace
	text := here(labtest.ReadFile(t, "deploy/compose/compose.yaml"))
	script := filepath.Join(c.dir, "prepare")
	if err := os.WriteFile(script, []byte(here(labtest.ReadFile(t, "deploy/compose/prepare"))), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(c.Ctx, script)
	cmd.Env = append(os.Environ(), "ISTHMUS="+program)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("prepare: %v\n%s", err, out)
	}
	again := exec.CommandContext(c.Ctx, script)
	again.Env = cmd.Env
	if out, err := again.CombinedOutput(); err == nil || !strings.Contains(string(out), "to begin anew") {
		t.Errorf("prepare again: %v\n%s", err, out)
	}
	env, err := os.ReadFile(filepath.Join(c.dir, ".env"))
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]string{}
	for line := range strings.Lines(string(env)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		values[name] = value
	}
	text = variable.ReplaceAllStringFunc(text, func(v string) string {
		parts := variable.FindStringSubmatch(v)
		if value := values[parts[1]]; value != "" {
			return value
		}
		if strings.Contains(v, ":?") {
			t.Errorf("prepare writes no %s", parts[1])
		}
		return parts[2]
	})
	dec := yaml.NewDecoder(strings.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(&c.file); err != nil {
		t.Fatal(err)
	}
	if user := fmt.Sprintf("%d:%[1]d", composeUser); c.file.Services["broker"].User != user {
		t.Errorf("user %q, want %q", c.file.Services["broker"].User, user)
	}
}

// container makes the file system of a service's container, and sets up its network.
func (c *composed) container(name, program string) {
	t := c.T
	t.Helper()
	s, at := c.file.Services[name], composeHosts[name]
	m := &machine{name: name, host: c.lab.Host(at.host), root: filepath.Join(c.dir, "roots", name), day: c.day}
	c.machines[name] = m
	for _, dir := range []string{"dev/shm", "proc", "usr/bin", "state", "programs"} {
		if err := os.MkdirAll(m.at(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	m.program(program, "/usr/bin/isthmus")
	m.write("/dev/null", "")
	m.mount("/dev/null")
	m.mount("/proc")
	if err := unix.Mount("none", m.at("dev/shm"), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777"); err != nil {
		t.Fatal(err)
	}
	c.mounts = append(c.mounts, m.at("dev/shm"))
	for _, v := range s.Volumes {
		from, to, _ := strings.Cut(v, ":")
		if to != "/state" {
			continue // of programs, which are put there
		}
		if err := unix.Mount(filepath.Join(c.dir, from), m.at(to), "", unix.MS_BIND, ""); err != nil {
			t.Fatalf("%s: %v", v, err)
		}
		c.mounts = append(c.mounts, m.at(to))
	}
	for key, value := range s.Sysctls {
		if err := m.host.Do(func() error {
			return os.WriteFile("/proc/sys/"+strings.ReplaceAll(key, ".", "/"), []byte(value), 0o644)
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// command returns the program of a service's image, with the service's environment.
func (c *composed) command(name string, words ...string) *lab.Cmd {
	m := c.machines[name]
	cmd := m.host.Command(c.Ctx, "/usr/bin/isthmus", words...)
	cmd.SysProcAttr.Chroot = m.root
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: composeUser, Gid: composeUser}
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/bin"}
	for key, value := range c.file.Services[name].Environment {
		cmd.Env = append(cmd.Env, key+"="+value)
	}
	return cmd
}

// serve runs a service, again when it fails, until the test ends.
func (c *composed) serve(name string) {
	for c.Ctx.Err() == nil {
		cmd := c.command(name, c.file.Services[name].Command...)
		log := &lockedLog{c: c, name: name}
		cmd.Stdout, cmd.Stderr = log, log
		if err := cmd.Run(); err == nil && c.Ctx.Err() == nil {
			c.T.Errorf("%s ended by itself", name)
			return
		}
		select {
		case <-time.After(time.Second / 2): // as a runtime does, so that others come up meanwhile
		case <-c.Ctx.Done():
		}
	}
}

// lockedLog is a service's output.
type lockedLog struct {
	c    *composed
	name string
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	if l.c.logs[l.name] == nil {
		l.c.logs[l.name] = &bytes.Buffer{}
	}
	return l.c.logs[l.name].Write(p)
}

func (c *composed) allLogs() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all strings.Builder
	for _, name := range slices.Sorted(maps.Keys(c.logs)) {
		fmt.Fprintf(&all, "\n-- %s\n%s", name, c.logs[name])
	}
	return all.String()
}

// isthmus runs a command in a service's container, as `docker compose exec` does.
func (c *composed) isthmus(name string, words ...string) (string, error) {
	cmd := c.command(name, words...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}
