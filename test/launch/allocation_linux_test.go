//go:build system

package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/pki/ca"
	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// A batch job's user, who has no certificate, makes the allocation's nodes nodes of the grid with
// the token that the site's scheduler issued for it, only for that user's processes and jobs, and
// leaves nothing behind.
func TestAllocationByToken(t *testing.T) {
	t.Parallel() // most of it is waiting
	labtest.NeedLab(t)
	if !labtest.IsRoot(t) {
		t.Skip("there is no other user here")
	}
	cfg := labtest.LaunchConfig(map[string]any{"jobs": 1, "processes": 2})
	cfg.Profile, cfg.Enrol = labtest.NoTraversalProfile, true
	w := newWorld(t, labtest.SiteClosed+labtest.SiteOpen, cfg)
	dir, err := os.MkdirTemp(filepath.Dir(labtest.Program(t, "")), "batch-") // where other users get
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { // so that the user can enter
		t.Fatal(err)
	}
	j := &batchJob{w: w, dir: dir, id: "4711"}
	j.scheduler(t)
	token := j.token(t, "n[1-2]", time.Now().Add(10*time.Minute))

	first := j.helper("closed/n1", "n1", token)
	first.up(t, "closed/alloc-4711.n1")
	second := j.helper("closed/n2", "n2", token)
	second.up(t, "closed/alloc-4711.n2")

	// The user's processes, with others of the job at another site.
	key := labtest.NewKey(t, "batch")
	keyFile := filepath.Join(j.dir, "job.key")
	if err := os.WriteFile(keyFile, []byte(key.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(keyFile, labtest.Nobody, labtest.Nobody); err != nil {
		t.Fatal(err)
	}
	ranks := func(host, rank, socket string) *lab.Cmd {
		return w.Lab.Host(host).Command(w.Ctx, labtest.Program(t, ""), "run", "--key", keyFile, "--size", "3", "--ranks", rank, "--helper", socket, labtest.Program(t, "-lab"), "example", "pingpong")
	}
	mine, my2, theirs := ranks("closed/n1", "0", first.socket()), ranks("closed/n2", "1", second.socket()), ranks("open/n1", "2", w.Socket("open/n1"))
	var out lockedBuffer
	for _, cmd := range []*lab.Cmd{mine, my2} {
		j.asUser(cmd)
	}
	for _, cmd := range []*lab.Cmd{mine, my2, theirs} {
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
	}
	for _, cmd := range []*lab.Cmd{mine, my2, theirs} {
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v\n%s", err, out.String())
		}
	}

	// Neither the same node again, nor one of another allocation.
	again := *j
	again.tmp = "again"
	for node, want := range map[string]string{"n1": "the token was used by helper closed/alloc-4711.n1 already", "n3": "host n3 is not one of allocation 4711 (n[1-2])"} {
		h := again.helper("closed/n1", node, token)
		if err := <-h.done; err == nil || !strings.Contains(h.out.String(), want) {
			t.Errorf("node %s: %v: %s; want %s", node, err, h.out.String(), want)
		}
	}
	j.impostor(t)
	j.booking(t)

	for _, h := range []*nodeHelper{first, second} {
		h.cmd.Process.Signal(syscall.SIGTERM)
		if err := <-h.done; err != nil {
			t.Errorf("%v: %s", err, h.out.String())
		}
	}
	for _, dir := range []string{"tmp-n1", "tmp-n2", "again-n1", "again-n3"} {
		if left, err := os.ReadDir(filepath.Join(j.dir, dir)); err != nil || len(left) > 0 {
			t.Errorf("left in %s: %v, %v", dir, left, err)
		}
	}
}

// impostor lets the user, who has the keys of the allocation's helpers, claim what they may not.
func (j *batchJob) impostor(t *testing.T) {
	w := j.w
	files := ca.Files{Cert: j.file("n1", "tls/cert.pem"), Key: j.file("n1", "tls/key.pem"), CA: j.file("n1", "tls/ca.pem")}
	s := w.Visit(t, files, "frontal closed", "closed/n1", 7440)
	key := labtest.NewKey(t, "others")
	reply, err := controlpb.NewDirectoryClient(s.Conn()).Register(w.Ctx, &controlpb.RegisterRequest{Points: []*controlpb.AccessPoint{{
		Process: &controlpb.Process{Job: string(key.ID()), Rank: 0}, Generation: 1, Site: "closed", Node: "alloc-4711.n1", Local: w.Lab.Host("closed/n1").Addr().String() + ":4000",
		Principal: &controlpb.Principal{User: "root@closed"},
	}}})
	if err != nil || len(reply.Faults) != 1 {
		t.Fatalf("a process of another account: %v, %v", reply, control.FromStatus(err))
	}
	if got, want := control.FaultErr(reply.Faults[0]).Error(), `this helper is of an allocation of nobody's, and speaks for no other account, and not for "root@closed"`; !strings.Contains(got, want) {
		t.Errorf("a process of another account: %v; want %s", got, want)
	}
	reply, err = controlpb.NewDirectoryClient(s.Conn()).Register(w.Ctx, &controlpb.RegisterRequest{Points: []*controlpb.AccessPoint{{
		Process: &controlpb.Process{Job: string(key.ID()), Rank: 0}, Generation: 1, Site: "closed", Node: "n1", Local: w.Lab.Host("closed/n1").Addr().String() + ":4000",
	}}})
	if err != nil || len(reply.Faults) != 1 {
		t.Errorf("a process of a permanent node: %v, %v", reply, control.FromStatus(err))
	}
}

// booking lets others book a node of the allocation.
func (j *batchJob) booking(t *testing.T) {
	for _, from := range []string{"closed/n2", "open/n1"} { // as root
		c := j.w.Talk(from, "closed/alloc-4711.n1", labtest.NewKey(t, "no"))
		c.Request(1)
		if m := c.Hear(); !strings.Contains(string(m.GetNok().GetText()), "takes that user's jobs only, of [nobody@closed/*]; not of root@"+from) {
			t.Errorf("booked from %s by another user: %v", from, m)
		}
		c.End()
	}
}

// batchJob is an allocation of a batch system for the user nobody.
type batchJob struct {
	w       *world
	dir, id string
	tmp     string // prefix of folders for temporary files; "tmp" if empty
	signer  ca.Files
}

func (j *batchJob) scheduler(t *testing.T) {
	t.Helper()
	var err error
	if j.signer, err = j.w.Issue(control.Identity{Role: control.RoleScheduler, Site: "closed"}, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
}

// token is the token that a prolog leaves for the user.
func (j *batchJob) token(t *testing.T, nodes string, ends time.Time) string {
	t.Helper()
	cmd := j.w.Isthmus("ca", "token", "--scheduler", j.signer.Cert, "--scheduler-key", j.signer.Key, "--ca", j.signer.CA,
		"--allocation", j.id, "--nodes", nodes, "--account", "nobody", "--until", fmt.Sprintf("@%d", ends.Unix()), "helper", "closed")
	text := j.w.ends(0, "", cmd)
	file := filepath.Join(j.dir, "token")
	if err := os.WriteFile(file, []byte(text), 0o400); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(file, labtest.Nobody, labtest.Nobody); err != nil {
		t.Fatal(err)
	}
	return file
}

// tmpOf is a node's folder for temporary files.
func (j *batchJob) tmpOf(node string) string {
	if j.tmp == "" {
		return filepath.Join(j.dir, "tmp-"+node)
	}
	return filepath.Join(j.dir, j.tmp+"-"+node)
}

// file is one of a node's helper.
func (j *batchJob) file(node, name string) string {
	return filepath.Join(j.tmpOf(node), fmt.Sprintf("isthmus-%d-%s", labtest.Nobody, j.id), name)
}

// asUser runs a command as the job's user.
func (j *batchJob) asUser(cmd *lab.Cmd) {
	cmd.Dir = "/"
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: labtest.Nobody, Gid: labtest.Nobody}
}

// nodeHelper is isthmus node on one node.
type nodeHelper struct {
	j    *batchJob
	node string
	cmd  *lab.Cmd
	out  *lockedBuffer
	done chan error // how it ended
}

func (j *batchJob) helper(host, node, token string) *nodeHelper {
	t := j.w.T
	t.Helper()
	if err := os.MkdirAll(j.tmpOf(node), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(j.tmpOf(node), labtest.Nobody, labtest.Nobody); err != nil {
		t.Fatal(err)
	}
	h := &nodeHelper{j: j, node: node, out: new(lockedBuffer)}
	h.cmd = j.w.Lab.Host(host).Command(j.w.Ctx, labtest.Program(t, ""), "node", "--token", token,
		"--frontal", j.w.Daemon("frontal closed").Host.Addr().String()+":7440", "--broker", j.w.Daemon("broker").Host.Addr().String()+":443")
	j.asUser(h.cmd)
	h.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + j.tmpOf(node), "SLURM_JOB_ID=" + j.id, "SLURMD_NODENAME=" + node, "SLURM_CPUS_ON_NODE=2", "ISTHMUS_HELPER_PRIVATE=" + strings.Join(grid.Private, ",")}
	h.cmd.Stdout, h.cmd.Stderr = h.out, h.out
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	h.done = make(chan error, 1)
	go func() { h.done <- h.cmd.Wait() }() // ends with the process, at the latest with the test
	t.Cleanup(func() { h.cmd.Process.Kill() })
	return h
}

func (h *nodeHelper) socket() string { return h.j.file(h.node, "helper.sock") }

// up waits until the grid lists the node.
func (h *nodeHelper) up(t *testing.T, name string) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !h.listed(name); time.Sleep(50 * time.Millisecond) { // nothing announces it
		if time.Now().After(end) {
			t.Fatalf("%s is not listed; its helper wrote:\n%s", name, h.out.String())
		}
	}
	if info, err := os.Stat(h.j.file(h.node, "tls/key.pem")); err != nil || info.Mode().Perm() != 0o600 || info.Sys().(*syscall.Stat_t).Uid != labtest.Nobody {
		t.Errorf("the key: %v, %v", info, err)
	}
}

// listed reports whether the grid lists the node with its allocation's resources.
func (h *nodeHelper) listed(name string) bool {
	for _, host := range h.j.w.hosts("closed/n1") {
		if host.Host == name && host.State == "up" && host.Jobs == 1 && host.Processes == 2 {
			return true
		}
	}
	return false
}
