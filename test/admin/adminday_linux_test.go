//go:build system

package admin

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// adminDayKey names, in the environment, the file to write the page of the admin's day to, instead
// of comparing the typed commands with the existing page:
//
//	ISTHMUS_ADMIN_DAY=../../docs/admin-day.md go test -run TestAdminDay ./test/admin
const adminDayKey = "ISTHMUS_ADMIN_DAY"

const adminDaySites = `
wan: {rtt: 4ms}
sites:
  - {name: sitea, preset: no-route/egress-443, nodes: [n1]}
  - {name: siteb, preset: egress-443, nodes: [n1]}
  - {name: pub, preset: public, nodes: [broker, p1, p2, desk]}
`

const adminDayTop = `# A day of two admins

What two sites' admins and the grid's administrator type in a day, and what they are answered: from nothing to a job over two sites, a
change of policy, new processes under load, a user who is revoked, and a question to the audit log. ` + "`TestAdminDay`" + ` does all of it
with real processes on the hosts of a lab, as the users that the units name, and fails when a command that it types is not on this
page. Times, numbers of connections and the like are those of one run; ` + "`systemctl`" + ` and ` + "`scp`" + ` stand for what the test does in their place.

Site A's nodes have no route out, and its gateway reaches port 443 only; site B lets its nodes out to port 443. The
broker and two proxies are on public hosts. The [admin guide](admin.md) explains what is done here.
`

// An admin's day, with the typed commands and the files in the packages.
func TestAdminDay(t *testing.T) {
	t.Parallel() // most of it is waiting
	labtest.NeedLab(t)
	examples := labtest.Program(t, "-lab") // building takes its own time
	if os.Getenv(packagesKey) == "" {
		labtest.Programs(t)
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), 5*time.Minute, fmt.Errorf("%s: not done after 5 minutes", t.Name()))
	defer cancel()
	spec, err := lab.Parse(t.Name(), []byte(adminDaySites))
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
	dir, err := os.MkdirTemp(lab.Dir(), "day-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	d := &day{World: &labtest.World{T: t, Ctx: ctx}, lab: l, dir: dir, root: labtest.IsRoot(t)}
	defer d.end()
	names := fmt.Sprintf("127.0.0.1 localhost\n%v broker.example.org\n%v gateway.site-a.example\n%v gateway.site-b.example\n",
		l.Host("pub/broker").Addr(), l.Host("sitea/gw").Addr(), l.Host("siteb/gw").Addr())
	at := func(name, host string) *machine {
		m := newMachine(d, name, host, names)
		d.machines = append(d.machines, m)
		return m
	}
	desk, broker, p1, p2 := at("desk", "pub/desk"), at("broker", "pub/broker"), at("p1", "pub/p1"), at("p2", "pub/p2")
	gwA, nodeA, gwB, nodeB := at("gw.sitea", "sitea/gw"), at("n1.sitea", "sitea/n1"), at("gw.siteb", "siteb/gw"), at("n1.siteb", "siteb/n1")
	gwA.own("/tmp", "root")
	for _, m := range []*machine{nodeA, nodeB} { // before a daemon has mapped the libraries that this installs, too
		m.program(examples, "/usr/bin/isthmus-lab")
	}
	d.page.WriteString(adminDayTop)

	d.title("The grid")
	d.say("The grid's administrator makes its authority and what one broker needs, on a machine of his own.")
	desk.apt("isthmus")
	desk.types("root", "isthmus ca init --dir ca mygrid")
	desk.types("root", "isthmus ca issue --dir ca --out certs broker b1")
	desk.types("root", "isthmus ca issuer --dir ca --out certs")
	desk.types("root", "isthmus ca issue --dir ca --out certs --valid 720h admin ada")
	d.say("The broker's host gets them, and two lines of its settings lose their mark.")
	broker.apt("isthmus", "isthmus-broker")
	for _, f := range []string{"broker-b1.pem broker.pem", "broker-b1.key broker.key", "ca.pem ca.pem", "issuer.pem issuer.pem", "issuer.key issuer.key"} {
		from, to, _ := strings.Cut(f, " ")
		d.scp(desk, "/root/certs/"+from, broker, "/etc/isthmus/"+to, "isthmus")
	}
	broker.edit("broker.yaml", "enrol.cert", "", "enrol.key", "")
	broker.types("root", "isthmus check /etc/isthmus/broker.yaml")
	broker.ctl("enable --now isthmus-broker")
	d.say("Two proxies enrol with tokens, which work once.")
	for i, p := range []*machine{p1, p2} {
		name := fmt.Sprintf("p%d", i+1)
		p.apt("isthmus", "isthmus-proxy")
		d.enroll(desk, p, "proxy", "proxy "+name, "")
		p.types("root", "isthmus check /etc/isthmus/proxy.yaml")
		p.ctl("enable --now isthmus-proxy")
	}

	d.title("Site A")
	d.say("The gateway first. The site's admin says what the firewall lets through, and takes the sample policy as it is: it lets " +
		"project climate work with siteb.")
	gwA.apt("isthmus", "isthmus-frontal")
	gwA.edit("frontal.yaml", "data_listen", "", "policy", "", "profile.inbound", "none", "profile.egress", "443", "profile.gateway_only", "true")
	d.scp(gwA, "/usr/share/doc/isthmus-frontal/policy.yaml", gwA, "/etc/isthmus/policy.yaml", "root")
	d.enroll(desk, gwA, "frontal", "frontal sitea", "")
	gwA.types("root", "isthmus check /etc/isthmus/frontal.yaml /etc/isthmus/policy.yaml")
	gwA.ctl("enable --now isthmus-frontal")
	d.say("The node has no way to the broker: the frontal passes on what it asks for, as the token says.")
	nodeA.apt("isthmus", "isthmus-helper")
	d.enroll(desk, nodeA, "helper", "--broker broker.example.org:443 --frontal gateway.site-a.example:7440 helper sitea/n1", "")
	nodeA.types("root", "isthmus check /etc/isthmus/helper.yaml")
	nodeA.ctl("enable --now isthmus-helper")

	d.title("Site B")
	d.say("The same at site B, whose nodes reach the broker themselves.")
	gwB.apt("isthmus", "isthmus-frontal")
	gwB.edit("frontal.yaml", "site", "siteb", "listen", "10.2.0.1:7440", "policy", "", "profile.inbound", "none", "profile.egress", "443")
	d.scp(gwB, "/usr/share/doc/isthmus-frontal/policy.yaml", gwB, "/etc/isthmus/policy.yaml", "root")
	policy := strings.Replace(gwB.read("/etc/isthmus/policy.yaml"), "grid@sitea", "grid@siteb", 1)
	gwB.write("/etc/isthmus/policy.yaml", policy)
	d.show(gwB, "root", "edit /etc/isthmus/policy.yaml", "contact: grid@siteb.example.org")
	d.enroll(desk, gwB, "frontal", "frontal siteb", "")
	gwB.types("root", "isthmus check /etc/isthmus/frontal.yaml /etc/isthmus/policy.yaml")
	gwB.ctl("enable --now isthmus-frontal")
	nodeB.apt("isthmus", "isthmus-helper")
	nodeB.edit("helper.yaml", "frontal", "gateway.site-b.example:7440")
	d.enroll(desk, nodeB, "helper", "helper siteb/n1", " --broker broker.example.org:443")
	nodeB.types("root", "isthmus check /etc/isthmus/helper.yaml")
	nodeB.ctl("enable --now isthmus-helper")
	d.say("The doctor looks from the node through the firewall, and writes what the network's admin would have to open.")
	look, report := "isthmus doctor --config /etc/isthmus/helper.yaml --firewall-request", ""
	d.Until("a green doctor", func() (green bool) { // on a busy machine an answer may be late
		out, complaint, status := nodeB.run("root", look)
		report = out + complaint
		return status == 0
	}, func() string { return report })
	d.show(nodeB, "root", look, report)

	d.title("A peer site")
	d.say("Two users of the grid get certificates.")
	for user, project := range map[string]string{"alice": "climate", "bob": "ocean-1"} {
		token := strings.TrimSpace(desk.quietly("root", "isthmus ca token --dir ca --cert-valid 720h --project "+project+" user "+user))
		nodeB.write("/tmp/token", token+"\n")
		if user == "alice" {
			d.show(nodeB, user, "isthmus ca enroll --broker broker.example.org:443 --token - < token",
				nodeB.quietly(user, "isthmus ca enroll --broker broker.example.org:443 --token - < /tmp/token"))
		} else {
			nodeB.quietly(user, "isthmus ca enroll --broker broker.example.org:443 --token - < /tmp/token")
		}
	}
	d.say("Alice starts a job at both sites, an example of `isthmus-lab`, which has been built from the source for this. Site B's policy does not name site A yet.")
	j := d.job("alice", "0s", true)
	if out := j.wait(); j.status() == 0 || !strings.Contains(out, "not permitted") || !strings.Contains(out, "no rule allows it; ask grid@siteb.example.org") {
		t.Errorf("the job ended with %d and should have been refused by site B's policy; it wrote:\n%s", j.status(), out)
	}
	d.say("Site B's admin adds the peer site, and asks what the two policies make of it now.")
	gwB.write("/etc/isthmus/policy.yaml", strings.Replace(policy, "sites: [siteb, sitec]", "sites: [sitea]", 1))
	d.show(gwB, "root", "edit /etc/isthmus/policy.yaml", "rules[1].sites: [sitea]")
	gwB.types("root", "isthmus check /etc/isthmus/policy.yaml")
	gwB.ctl("reload isthmus-frontal")
	admin := "--broker broker.example.org:443 --cert certs/admin-ada.pem --tls-key certs/admin-ada.key --ca certs/ca.pem"
	d.Until("the broker to have site B's new policy", func() bool {
		out, _, status := desk.run("root", "isthmus policy explain --from sitea --to siteb --user alice --project climate "+admin)
		return status == 0 && strings.Contains(out, "permitted")
	})
	desk.types("root", "isthmus policy explain --from sitea --to siteb --user alice --project climate "+admin)
	j = d.job("alice", "1s", true)
	if out := j.wait(); j.status() != 0 || !strings.Contains(out, "all right") {
		t.Errorf("the job after that ended with %d; it wrote:\n%s", j.status(), out)
	}
	desk.types("root", "isthmus status "+admin)

	d.title("New processes, and one that leaves, under load")
	d.say("One job goes on while short ones come and go. Proxy p1 and site A's frontal, which carry them, are replaced by new processes of their " +
		"programs, as after an upgrade; then p1 drains, ends and is started again.")
	long := d.job("alice", "5s", false)
	long.there()
	load := d.load()
	p1.ctl("kill --kill-whom=main -s USR2 isthmus-proxy")
	load.more(1)
	gwA.ctl("kill --kill-whom=main -s USR2 isthmus-frontal")
	load.more(1)
	p1.ctl("kill --kill-whom=main -s USR1 isthmus-proxy")
	load.more(1)
	p1.ctl("start isthmus-proxy")
	load.more(1)
	if out := long.wait(); long.status() != 0 {
		t.Errorf("the job that went on ended with %d; it wrote:\n%s", long.status(), out)
	}
	d.Until("the frontal's predecessor to end after its last link", gwA.services["isthmus-frontal"].ended)
	jobs, failed := load.end()
	if len(failed) > 0 {
		t.Errorf("%d of %d jobs failed under load, the first with:\n%s", len(failed), jobs, failed[0])
	}
	d.say("The job that went on ended well, and so did all short ones beside it. Each process that was replaced ended after its last link.")
	t.Logf("%d short jobs under load", jobs)

	d.title("A user is revoked")
	d.say("Bob's job runs when his key is found to be stolen.")
	j = d.job("bob", "10m", false)
	j.there()
	start := time.Now()
	desk.types("root", "isthmus ca revoke --dir ca "+admin+" user bob")
	out := j.wait()
	took := time.Since(start)
	if told := out + nodeA.services["isthmus-helper"].log() + nodeB.services["isthmus-helper"].log(); j.status() == 0 || !strings.Contains(told, "revoked") {
		t.Errorf("bob's job ended with %d and should have been told that he is revoked; it wrote:\n%s", j.status(), out)
	}
	t.Logf("bob's job had ended %v after the command began", took.Round(time.Millisecond))
	d.show(nodeB, "bob", "", lastLines(out, 2))
	j = d.job("bob", "0s", false)
	if out := j.wait(); !strings.Contains(out, "revoked") {
		t.Errorf("bob's next job ended with %d and should have been refused; it wrote:\n%s", j.status(), out)
	}
	d.say("Within 5 s the links are closed, the processes are ended and told why, and the next job is refused.")

	d.title("Who moved most?")
	d.say("Site A's gateway carried all of its links, and has them in its audit log.")
	gwA.ctl("stop isthmus-frontal")
	moved := gwA.types("root", "isthmus audit query --sum bytes --by user,project,sites /var/lib/isthmus/frontal/audit")
	if lines := strings.Split(moved, "\n"); len(lines) < 3 || !strings.HasPrefix(lines[1], "alice ") && !strings.HasPrefix(lines[1], "bob ") {
		t.Errorf("who moved most: %s", moved)
	}
	gwA.types("root", "isthmus audit verify /var/lib/isthmus/frontal/audit")
	p1.types("root", "isthmus audit verify /var/lib/isthmus/proxy/audit")
	gwB.types("root", "isthmus audit query --event refusal /var/lib/isthmus/frontal/audit")
	d.compare()
}

// compare compares the typed commands with the page, or writes it.
func (d *day) compare() {
	d.closeBlock()
	if name := os.Getenv(adminDayKey); name != "" {
		if err := os.WriteFile(name, []byte(settledText(d.page.String())), 0o644); err != nil {
			d.T.Error(err)
		}
		return
	}
	var there []string
	for line := range strings.Lines(labtest.ReadFile(d.T, "docs/admin-day.md")) {
		if prompt.MatchString(line) {
			there = append(there, strings.TrimSpace(line))
		}
	}
	if !slices.Equal(there, d.typed) {
		for i := range max(len(there), len(d.typed)) {
			if i >= len(there) || i >= len(d.typed) || there[i] != d.typed[i] {
				d.T.Errorf("docs/admin-day.md has other commands than were typed, from number %d on; write it anew with %s=../../docs/admin-day.md", i+1, adminDayKey)
				break
			}
		}
	}
}

var prompt = regexp.MustCompile(`^(root|alice|bob)@[a-z0-9.]+[$#] `)

// settledText removes from the page what differs from run to run without meaning for a reader.
func settledText(s string) string {
	host, _ := os.Hostname()
	for _, r := range []struct{ what, with string }{
		{`\[` + regexp.QuoteMeta(host) + `:`, "[n1:"},
		{`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d`, "2026-11-23 09:00:00"},
		{`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`, "2026-11-23T09:00:00Z"},
		{`[0-9a-f]{64}`, "0123…"},
		{`-[0-9a-f]{32}`, "-0123…"},
		{`(?m)[ \t]+$`, ""},
	} {
		s = regexp.MustCompile(r.what).ReplaceAllString(s, r.with)
	}
	return s
}

// lastLines returns the last n lines of a text.
func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

func (d *day) closeBlock() {
	if d.block {
		d.page.WriteString("```\n")
	}
	d.block = false
}

func (d *day) title(text string) {
	d.closeBlock()
	fmt.Fprintf(&d.page, "\n## %s\n", text)
}

func (d *day) say(text string) {
	d.closeBlock()
	fmt.Fprintf(&d.page, "\n%s\n", text)
}

// show adds a command and its answer to the page; without a command only the answer.
func (d *day) show(m *machine, user, line, answer string) {
	if !d.block {
		d.page.WriteString("\n```console\n")
	}
	d.block = true
	if line != "" {
		mark := "$"
		if user == "root" {
			mark = "#"
		}
		typed := fmt.Sprintf("%s@%s%s %s", user, m.name, mark, line)
		d.typed = append(d.typed, typed)
		d.page.WriteString(typed + "\n")
	}
	if answer = strings.TrimRight(answer, "\n"); answer != "" {
		d.page.WriteString(answer + "\n")
	}
}

// types runs a command that must succeed, shows it, and returns its output.
func (m *machine) types(user, line string) string {
	m.day.T.Helper()
	out := m.quietly(user, line)
	m.day.show(m, user, line, out)
	return out
}

// quietly is types without showing it.
func (m *machine) quietly(user, line string) string {
	m.day.T.Helper()
	out, complaint, status := m.run(user, line)
	if status != 0 {
		m.day.T.Fatalf("%s@%s: %s: status %d:\n%s%s", user, m.name, line, status, out, complaint)
	}
	return out + complaint
}

// run runs a command line of words, with quotes, "sudo -u USER" in front, and "< FILE" or "> FILE"
// at the end.
func (m *machine) run(user, line string) (stdout, stderr string, status int) {
	m.day.T.Helper()
	words := split(line)
	home := accounts[user].home
	file := func(mark string) string {
		i := slices.Index(words, mark)
		if i < 0 {
			return ""
		}
		name := words[i+1]
		words = slices.Delete(words, i, i+2)
		if !filepath.IsAbs(name) {
			name = filepath.Join(home, name)
		}
		return name
	}
	from, to := file("<"), file(">")
	if words[0] == "sudo" {
		user, words = words[2], words[3:]
	}
	cmd := m.command(user, words)
	if accounts[user].home != home {
		cmd.Dir = "/" // sudo's command may stay where its user may not go
	}
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if from != "" {
		cmd.Stdin = strings.NewReader(m.read(from))
	}
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		m.day.T.Fatalf("%s: %v", line, err)
	}
	if to != "" {
		m.write(to, out.String())
		out.Reset()
	}
	return out.String(), complaint.String(), cmd.ProcessState.ExitCode()
}

// split splits a line into words as a shell does, as far as needed here.
func split(line string) (words []string) {
	for _, word := range regexp.MustCompile(`'[^']*'|\S+`).FindAllString(line, -1) {
		words = append(words, strings.Trim(word, "'"))
	}
	return words
}

func (m *machine) apt(packages ...string) {
	m.day.T.Helper()
	m.install(packages...)
	line := "apt-get install"
	for _, p := range packages {
		line += " ./" + p + "_*.deb"
	}
	m.day.show(m, "root", line, "")
}

func (m *machine) ctl(line string) {
	m.day.T.Helper()
	m.systemctl(strings.Fields(line)...)
	m.day.show(m, "root", "systemctl "+line, "")
}

// edit changes settings from the package: each key is uncommented, and gets the value if one is
// given.
func (m *machine) edit(file string, keysAndValues ...string) {
	m.day.T.Helper()
	name := "/etc/isthmus/" + file
	lines := strings.Split(m.read(name), "\n")
	var said []string
	for i := 0; i < len(keysAndValues); i += 2 {
		key, value := keysAndValues[i], keysAndValues[i+1]
		at := 0
		path := strings.Split(key, ".")
		for depth, part := range path {
			start := regexp.MustCompile(fmt.Sprintf(`^ {%d}#?%s:`, 2*depth, part))
			next := slices.IndexFunc(lines[at:], start.MatchString)
			if next < 0 {
				m.day.T.Fatalf("%s has no key %s", name, key)
			}
			at += next
		}
		indent := strings.Repeat("  ", len(path)-1)
		if value == "" {
			_, value, _ = strings.Cut(strings.TrimSpace(lines[at]), ": ")
		}
		lines[at] = indent + path[len(path)-1] + ": " + value
		said = append(said, key+": "+value)
	}
	m.write(name, strings.Join(lines, "\n"))
	m.day.show(m, "root", "edit "+name, strings.Join(said, "\n"))
}

// scp copies a file to another machine.
func (d *day) scp(from *machine, file string, to *machine, name, owner string) {
	d.T.Helper()
	mode := os.FileMode(0o644)
	if strings.HasSuffix(name, ".key") || strings.Contains(name, "key.pem") || strings.Contains(name, "token") {
		mode = 0o600
	}
	to.put(name, []byte(from.read(file)), mode)
	to.own(name, owner)
	line := "scp " + strings.TrimPrefix(file, "/root/") + " " + to.name + ":" + name
	if from == to {
		line = "cp " + file + " " + name
	}
	d.show(from, "root", line, "")
}

// enroll makes a token, copies it to the host, and exchanges it for a certificate at the location
// in the daemon's settings.
func (d *day) enroll(desk, host *machine, daemon, identity, flags string) {
	d.T.Helper()
	desk.types("root", "isthmus ca token --dir ca "+identity+" > token")
	d.scp(desk, "/root/token", host, "/root/token", "root")
	host.types("root", "sudo -u isthmus isthmus ca enroll --config /etc/isthmus/"+daemon+".yaml"+flags+" --token - < token")
}

// pairJob is a job of two ranks, one at each site.
type pairJob struct {
	d    *day
	cmds [2]*lab.Cmd
	outs [2]*labtest.Background
	done sync.WaitGroup
}

// job makes a user start the traffic program at both sites, for a time.
func (d *day) job(user, last string, show bool) *pairJob {
	d.T.Helper()
	nodes := []*machine{d.machineCalled("n1.siteb"), d.machineCalled("n1.sitea")}
	key := nodes[0].quietly(user, "isthmus job new work")
	file := accounts[user].home + "/work.key"
	for _, m := range nodes {
		m.put(file, []byte(key), 0o600)
		m.own(file, user)
	}
	grant := strings.TrimSpace(nodes[0].quietly(user, "isthmus job grant work.key"))
	j := &pairJob{d: d}
	for rank, m := range nodes {
		line := fmt.Sprintf("isthmus run --key work.key --size 2 --ranks %d-%[1]d isthmus-lab example traffic --for %s", rank, last)
		if show {
			prefix := ""
			if rank == 1 {
				prefix = "ISTHMUS_GRANT=... "
			}
			d.show(m, user, prefix+line, "")
		}
		env := []string{"ISTHMUS_HELPER=/run/isthmus/helper.sock"}
		if rank == 1 {
			env = append(env, "ISTHMUS_GRANT="+grant)
		}
		cmd := m.command(user, strings.Fields(line), env...)
		out := &labtest.Background{}
		cmd.Stdout, cmd.Stderr = out, out
		if err := cmd.Start(); err != nil {
			d.T.Fatal(err)
		}
		j.cmds[rank], j.outs[rank] = cmd, out
		j.done.Go(func() { cmd.Wait() }) // ends with d.ctx at the latest
	}
	if show {
		d.show(nodes[0], user, "", j.wait())
	}
	return j
}

func (d *day) machineCalled(name string) *machine {
	return d.machines[slices.IndexFunc(d.machines, func(m *machine) bool { return m.name == name })]
}

// there waits until both ranks take part.
func (j *pairJob) there() {
	j.d.T.Helper()
	j.d.Until("the job to run", func() bool { return strings.Contains(j.outs[0].Output(), "2 ranks are there") }, j.said)
}

func (j *pairJob) said() string { return j.outs[0].Output() + j.outs[1].Output() }

// wait returns the job's output when it has ended.
func (j *pairJob) wait() string {
	j.done.Wait()
	return j.said()
}

// status returns the status of the first rank that failed, of a job that has ended.
func (j *pairJob) status() int {
	for _, cmd := range j.cmds {
		if n := cmd.ProcessState.ExitCode(); n != 0 {
			return n
		}
	}
	return 0
}

// load is a series of short jobs.
type load struct {
	d     *day
	stop  chan struct{}
	ended chan struct{}

	mu     sync.Mutex // guards the fields below
	jobs   int
	failed []string
}

func (d *day) load() *load {
	l := &load{d: d, stop: make(chan struct{}), ended: make(chan struct{})}
	go l.run() // end waits for it
	return l
}

func (l *load) run() {
	defer close(l.ended)
	for {
		select {
		case <-l.stop:
			return
		case <-l.d.Ctx.Done():
			return
		default:
		}
		j := l.d.job("alice", "200ms", false)
		out := j.wait()
		l.mu.Lock()
		l.jobs++
		if j.status() != 0 {
			l.failed = append(l.failed, out)
		}
		l.mu.Unlock()
	}
}

func (l *load) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.jobs
}

// more waits until n more jobs have begun and ended.
func (l *load) more(n int) {
	l.d.T.Helper()
	want := l.count() + n + 1 // the one in progress may have begun before
	l.d.Until("more jobs to end", func() bool { return l.count() >= want })
}

func (l *load) end() (jobs int, failed []string) {
	close(l.stop)
	<-l.ended
	return l.jobs, l.failed
}
