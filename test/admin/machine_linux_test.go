//go:build system

package admin

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
	"gopkg.in/yaml.v3"

	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// A machine is a host of a lab with a file system of its own, in which packages are installed,
// users log in and services run as their units specify.
type machine struct {
	name     string // as shown in its prompt
	host     *lab.Host
	root     string // root folder of its processes
	day      *day
	services map[string]*service
}

// account is one of a machine's users.
type account struct {
	id   uint32
	home string
}

// accounts are those of every machine.
var accounts = map[string]account{
	"root": {0, "/root"}, "isthmus": {990, "/var/lib/isthmus"}, "alice": {1000, "/home/alice"}, "bob": {1001, "/home/bob"},
}

// newMachine sets up a host like a distribution, without Isthmus. The names are added to
// /etc/hosts.
func newMachine(d *day, name, host, names string) *machine {
	t := d.T
	m := &machine{name: name, host: d.lab.Host(host), root: filepath.Join(d.dir, name), day: d, services: map[string]*service{}}
	for _, dir := range []string{"dev", "etc", "proc", "run", "tmp", "usr/bin", "var/log"} {
		if err := os.MkdirAll(filepath.Join(m.root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var users, groups strings.Builder
	for user, a := range accounts {
		fmt.Fprintf(&users, "%s:x:%d:%d::%s:/bin/sh\n", user, a.id, a.id, a.home)
		fmt.Fprintf(&groups, "%s:x:%d:\n", user, a.id)
		if user != "isthmus" {
			m.folder(a.home, user, 0o700)
		}
	}
	m.write("/etc/passwd", users.String())
	m.write("/etc/group", groups.String())
	m.write("/etc/hosts", names)
	m.write("/dev/null", "")
	m.mount("/dev/null")
	m.mount("/proc")
	return m
}

// at returns the path of a machine's file for this process.
func (m *machine) at(name string) string { return filepath.Join(m.root, name) }

func (m *machine) write(name, text string) {
	m.day.T.Helper()
	if err := os.WriteFile(m.at(name), []byte(text), 0o644); err != nil {
		m.day.T.Fatal(err)
	}
}

func (m *machine) read(name string) string {
	m.day.T.Helper()
	text, err := os.ReadFile(m.at(name))
	if err != nil {
		m.day.T.Fatal(err)
	}
	return string(text)
}

// own changes the owner of a file to one of the machine's users, if there are others.
func (m *machine) own(name, user string) {
	m.day.T.Helper()
	if id := int(accounts[user].id); m.day.root {
		if err := os.Chown(m.at(name), id, id); err != nil {
			m.day.T.Fatal(err)
		}
	}
}

// folder creates a folder, and its parents.
func (m *machine) folder(name, user string, mode fs.FileMode) {
	m.day.T.Helper()
	if err := os.MkdirAll(m.at(name), 0o755); err != nil {
		m.day.T.Fatal(err)
	}
	if err := os.Chmod(m.at(name), mode); err != nil {
		m.day.T.Fatal(err)
	}
	m.own(name, user)
}

// mount bind-mounts something of this process's file system at the same place.
func (m *machine) mount(name string) {
	m.day.T.Helper()
	at := m.at(name)
	if err := unix.Mount(name, at, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		m.day.T.Fatalf("mounting %s: %v", at, err)
	}
	m.day.mounts = append(m.day.mounts, at)
}

// install installs a package's files and does what its scripts do. The files come from the deb in
// the folder that the environment names, which deploy/pack has made; without it from the contents
// listed in packages.yaml, and the programs of the other tests, since CI's machines need no dpkg.
func (m *machine) install(packages ...string) {
	m.day.T.Helper()
	for _, name := range packages {
		if folder := os.Getenv(packagesKey); folder != "" {
			m.unpack(folder, name)
		} else {
			m.assemble(name)
		}
	}
	m.folder("/var/lib/isthmus", "root", 0o755)
	for _, name := range packages {
		daemon, is := strings.CutPrefix(name, "isthmus-")
		if !is {
			continue
		}
		if m.day.root {
			if err := os.Chown(m.at("/etc/isthmus/"+daemon+".yaml"), 0, int(accounts["isthmus"].id)); err != nil {
				m.day.T.Fatal(err)
			}
		}
		m.folder("/var/lib/isthmus/"+daemon, "isthmus", 0o700)
	}
}

// packagesKey names, in the environment, a folder of packages to install.
const packagesKey = "ISTHMUS_PACKAGES"

// unpack unpacks a deb: an ar archive with a tar archive in it.
func (m *machine) unpack(folder, name string) {
	t := m.day.T
	t.Helper()
	found, err := filepath.Glob(filepath.Join(folder, name+"_*.deb"))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: want one package %s there, found %q (%v)", folder, name, found, err)
	}
	text, err := os.ReadFile(found[0])
	if err != nil {
		t.Fatal(err)
	}
	rest, ok := bytes.CutPrefix(text, []byte("!<arch>\n"))
	if !ok {
		t.Fatalf("%s is no ar archive", found[0])
	}
	for len(rest) >= 60 { // name[16] times and modes[32] size[10] end[2]
		member := strings.TrimRight(string(rest[:16]), " /")
		size, err := strconv.Atoi(strings.TrimSpace(string(rest[48:58])))
		if err != nil || size < 0 || size > len(rest)-60 {
			t.Fatalf("%s: member %s: size %q", found[0], member, rest[48:58])
		}
		if member == "data.tar.gz" {
			m.untar(found[0], rest[60:60+size])
			return
		}
		rest = rest[min(len(rest), 60+size+size%2):]
	}
	t.Fatalf("%s has no data.tar.gz", found[0])
}

func (m *machine) untar(name string, data []byte) {
	t := m.day.T
	t.Helper()
	unzip, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	for files := tar.NewReader(unzip); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if h.Typeflag == tar.TypeReg {
			text, err := io.ReadAll(files)
			if err != nil {
				t.Fatalf("%s: %s: %v", name, h.Name, err)
			}
			m.put(path.Clean("/"+h.Name), text, h.FileInfo().Mode().Perm())
		}
	}
}

func (m *machine) put(name string, text []byte, mode fs.FileMode) {
	m.day.T.Helper()
	if err := os.MkdirAll(filepath.Dir(m.at(name)), 0o755); err != nil {
		m.day.T.Fatal(err)
	}
	if err := os.WriteFile(m.at(name), text, mode); err != nil {
		m.day.T.Fatal(err)
	}
}

// assemble installs the contents of a package according to packages.yaml.
func (m *machine) assemble(name string) {
	t := m.day.T
	t.Helper()
	bin := labtest.Programs(t)
	type content struct {
		Src, Dst, Type string
		FileInfo       struct{ Mode fs.FileMode } `yaml:"file_info"`
	}
	text := strings.ReplaceAll(labtest.ReadFile(t, "deploy/pack/packages.yaml"), "${BIN}", bin)
	for docs := yaml.NewDecoder(strings.NewReader(text)); ; {
		var doc struct {
			Name     string
			Contents []content
		}
		if err := docs.Decode(&doc); err != nil {
			t.Fatalf("packages.yaml: package %s: %v", name, err)
		}
		if doc.Name != name {
			continue
		}
		for _, c := range doc.Contents {
			switch {
			case c.Type == "dir":
				m.folder(c.Dst, "root", c.FileInfo.Mode)
			case filepath.Dir(c.Src) == bin && c.FileInfo.Mode&0o111 != 0:
				m.program(c.Src, c.Dst)
			case filepath.Dir(c.Src) != bin && !strings.Contains(c.Src, "*"): // else pages
				m.put(c.Dst, []byte(labtest.ReadFile(t, c.Src)), c.FileInfo.Mode)
			}
		}
		return
	}
}

// program installs a program, and the libraries that it needs: it is static only if built without
// cgo.
func (m *machine) program(from, to string) {
	t := m.day.T
	t.Helper()
	if err := os.Link(from, m.at(to)); err != nil {
		t.Fatal(err)
	}
	f, err := elf.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	libraries, err := f.ImportedLibraries()
	if err != nil || len(libraries) == 0 {
		return // static
	}
	var loader string
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			text, err := io.ReadAll(p.Open())
			if err != nil {
				t.Fatal(err)
			}
			loader = strings.TrimRight(string(text), "\x00")
		}
	}
	text, err := os.ReadFile(loader)
	if err != nil {
		t.Fatalf("%s: its loader: %v", from, err)
	}
	m.put(loader, text, 0o755)
	real, err := filepath.EvalSymlinks(loader)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range libraries {
		for _, dir := range []string{filepath.Dir(real), "/lib64", "/lib", "/usr/lib64", "/usr/lib"} {
			if text, err = os.ReadFile(filepath.Join(dir, name)); err == nil {
				break
			}
		}
		if err != nil {
			t.Fatalf("%s: its library: %v", from, err)
		}
		m.put("/lib/"+name, text, 0o755)
		m.put("/lib64/"+name, text, 0o755)
	}
}

// command returns a user's command, not started yet.
func (m *machine) command(user string, argv []string, env ...string) *lab.Cmd {
	cmd := m.host.Command(m.day.Ctx, "/usr/bin/"+argv[0], argv[1:]...)
	cmd.SysProcAttr.Chroot = m.root
	who := accounts[user]
	if m.day.root {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: who.id, Gid: who.id}
	}
	cmd.Dir = who.home
	cmd.Env = append([]string{"PATH=/usr/bin", "HOME=" + who.home, "LANG=C.UTF-8"}, env...)
	return cmd
}

// A service is a service of a machine, run as its unit specifies.
type service struct {
	unit string
	m    *machine
	cmd  *lab.Cmd
	done chan struct{} // closed when cmd has ended
	bus  *net.UnixConn

	mu    sync.Mutex // guards the fields below
	ready int        // how often it reported that
	pid   int        // its main process
	all   []int      // all its processes so far
}

// setting returns the value of a unit's key, without the file's comments.
func (s *service) setting(key string) string {
	s.m.day.T.Helper()
	text := s.m.read("/usr/lib/systemd/system/" + s.unit + ".service")
	found := regexp.MustCompile("(?m)^" + key + "=(.*)$").FindStringSubmatch(text)
	if found == nil {
		return ""
	}
	return strings.TrimSpace(found[1])
}

// systemctl does what systemd does on start, reload, kill and stop, as far as these units need it.
func (m *machine) systemctl(words ...string) {
	t := m.day.T
	t.Helper()
	unit := words[len(words)-1]
	s := m.services[unit]
	switch verb := words[0]; {
	case verb == "enable", verb == "start":
		s = &service{unit: unit, m: m}
		m.services[unit] = s
		s.start()
	case s == nil:
		t.Fatalf("%s does not run on %s", unit, m.name)
	case verb == "reload":
		before, _ := s.state()
		s.signal(syscall.SIGHUP)
		m.day.Until(unit+" to have read its settings", func() bool { n, _ := s.state(); return n > before }, s.log)
	case verb == "kill" && strings.Contains(strings.Join(words, " "), "USR2"):
		_, before := s.state()
		s.signal(syscall.SIGUSR2)
		m.day.Until(unit+" to have a successor", func() bool { _, pid := s.state(); return pid != before }, s.log)
	case verb == "kill" && strings.Contains(strings.Join(words, " "), "USR1"):
		s.signal(syscall.SIGUSR1)
		m.day.Until(unit+" to have drained", func() bool { return s.gone() }, s.log)
		s.bus.Close()
		delete(m.services, unit)
	case verb == "stop":
		s.signal(syscall.SIGTERM)
		m.day.Until(unit+" to end", func() bool { return s.gone() }, s.log)
		s.bus.Close()
		delete(m.services, unit)
	default:
		t.Fatalf("systemctl %q is not known here", words)
	}
}

func (s *service) start() {
	t, m := s.m.day.T, s.m
	t.Helper()
	words := strings.Fields(s.setting("ExecStart"))
	user := s.setting("User")
	socket := "/run/notify-" + s.unit
	os.Remove(m.at(socket))
	bus, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: m.at(socket), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	s.bus = bus
	if err := os.Chmod(m.at(socket), 0o666); err != nil {
		t.Fatal(err)
	}
	env := []string{"NOTIFY_SOCKET=" + socket}
	for key, top := range map[string]string{"State": "/var/lib/", "Runtime": "/run/", "Cache": "/var/cache/"} {
		if name := s.setting(key + "Directory"); name != "" {
			mode := fs.FileMode(0o755)
			if text := s.setting(key + "DirectoryMode"); text != "" {
				n, err := strconv.ParseUint(text, 8, 32)
				if err != nil {
					t.Fatalf("%s: %sDirectoryMode: %v", s.unit, key, err)
				}
				mode = fs.FileMode(n)
			}
			m.folder(top+name, user, mode)
			env = append(env, strings.ToUpper(key)+"_DIRECTORY="+top+name)
		}
	}
	s.cmd = m.command(user, append([]string{path.Base(words[0])}, words[1:]...), env...)
	if m.day.root && s.setting("AmbientCapabilities") == "CAP_NET_BIND_SERVICE" {
		s.cmd.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_NET_BIND_SERVICE}
	}
	log, err := os.OpenFile(m.at("/var/log/"+s.unit), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close() // the daemon has its own descriptor
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.pid, s.all = s.cmd.Process.Pid, []int{s.cmd.Process.Pid}
	s.done = make(chan struct{})
	go func() { // ends with the process, for which gone waits
		s.cmd.Wait()
		close(s.done)
	}()
	go s.listen() // ends when the socket is closed
	m.day.Until(s.unit+" on "+m.name+" to be ready", func() bool {
		if s.ended() {
			t.Fatalf("%s on %s ended:\n%s", s.unit, m.name, s.log())
		}
		n, _ := s.state()
		return n > 0
	}, s.log)
}

// listen receives the daemon's notifications to its service manager, as in sd_notify(3).
func (s *service) listen() {
	text := make([]byte, 4096)
	for {
		n, err := s.bus.Read(text)
		if err != nil {
			return
		}
		s.mu.Lock()
		for line := range strings.Lines(string(text[:n])) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			switch pid, err := strconv.Atoi(value); {
			case key == "READY":
				s.ready++
			case key == "MAINPID" && err == nil:
				s.pid, s.all = pid, append(s.all, pid)
			}
		}
		s.mu.Unlock()
	}
}

func (s *service) state() (ready, pid int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ready, s.pid
}

func (s *service) signal(sig syscall.Signal) {
	_, pid := s.state()
	if err := syscall.Kill(pid, sig); err != nil {
		s.m.day.T.Errorf("%s on %s: %v: %v", s.unit, s.m.name, sig, err)
	}
}

// ended reports whether the first process has ended.
func (s *service) ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// gone reports whether all its processes have ended.
func (s *service) gone() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, pid := range s.all[1:] {
		if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil && !bytes.Contains(stat, []byte(") Z ")) {
			return false
		}
	}
	return s.ended()
}

// kill kills the remaining processes.
func (s *service) kill() {
	s.mu.Lock()
	for _, pid := range s.all {
		syscall.Kill(pid, syscall.SIGKILL) // an error means that it is gone
	}
	s.mu.Unlock()
	<-s.done
	s.bus.Close()
}

func (s *service) log() string {
	text, err := os.ReadFile(s.m.at("/var/log/" + s.unit))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// day is the work of one or more admins in one lab.
type day struct {
	*labtest.World // with only test and context set: for Until
	lab            *lab.Lab
	dir            string
	root           bool // whether there are users other than this process's
	mounts         []string
	machines       []*machine
	page           strings.Builder
	typed          []string // every command, with its prompt
	block          bool     // the page is inside a block of commands
}

// end stops what is still running and removes the machines.
func (d *day) end() {
	if d.T.Failed() {
		d.T.Logf("the page as far as it came:\n%s", d.page.String())
	}
	for i := len(d.machines) - 1; i >= 0; i-- {
		for _, s := range d.machines[i].services {
			if d.T.Failed() {
				d.T.Logf("%s on %s wrote:\n%s", s.unit, d.machines[i].name, s.log())
			}
			s.kill()
		}
	}
	for _, at := range d.mounts {
		if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
			d.T.Fatalf("unmounting %s: %v; its files are left", at, err) // removing them would remove what is mounted
		}
	}
	if err := os.RemoveAll(d.dir); err != nil {
		d.T.Error(err)
	}
}
