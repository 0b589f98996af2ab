//go:build system

package security

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/broker"
	"github.com/isthmus-grid/isthmus/internal/account/audit"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/pki/ca"
	"github.com/isthmus-grid/isthmus/internal/pki/enrol"
	"github.com/isthmus-grid/isthmus/internal/store/storetest"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// enrolment is a CA in a folder and brokers that enrol, each a process at an address of this
// machine.
type enrolment struct {
	t    *testing.T
	ctx  context.Context
	dir  string
	keys *ca.CA
}

func newEnrolment(t *testing.T) *enrolment {
	t.Helper()
	labtest.NeedLab(t)
	ctx, cancel := context.WithTimeout(context.Background(), labtest.Patience)
	t.Cleanup(cancel)
	e := &enrolment{t: t, ctx: ctx, dir: t.TempDir()}
	e.ca("init", "tg")
	e.ca("issue", "admin", "ada")
	var err error
	if e.keys, err = ca.Load(filepath.Join(e.dir, "ca")); err != nil {
		t.Fatal(err)
	}
	return e
}

// ca runs "isthmus ca" in the CA's folder.
func (e *enrolment) ca(args ...string) string {
	e.t.Helper()
	cmd := exec.Command(labtest.Program(e.t, ""), append([]string{"ca"}, args...)...)
	cmd.Dir = e.dir
	out, complaint, status := labtest.Run(e.t, cmd)
	if status != 0 {
		e.t.Fatalf("ca %q: status %d: %s", args, status, complaint)
	}
	return out
}

// enrolling is a broker that enrols.
type enrolling struct {
	e       *enrolment
	name    string
	file    string   // its settings
	args    []string // additional arguments of its command
	trail   string   // its audit log's folder
	addr    string
	metrics string    // address of its metrics; "" for none
	cmd     *exec.Cmd // nil while it is down
	log     string    // file of its output
}

// broker writes the settings of a broker, and starts it.
func (e *enrolment) broker(name, settings string, args ...string) *enrolling {
	e.t.Helper()
	dir := filepath.Join(e.dir, name)
	e.ca("issue", "--out", dir, "broker", name)
	e.ca("issuer", "--out", dir)
	b := &enrolling{e: e, name: name, file: filepath.Join(dir, "broker.yaml"), trail: filepath.Join(dir, "audit"), addr: "127.0.0.1:0", args: args, log: filepath.Join(dir, "log")}
	text := fmt.Sprintf("stun_listen: \"\"\nallow_loopback: true\naudit: {folder: %s}\n"+
		"tls: {cert: broker-%s.pem, key: broker-%s.key, ca: ../ca.pem}\nenrol: {cert: issuer.pem, key: issuer.key}\n%s", b.trail, name, name, settings)
	if err := os.WriteFile(b.file, []byte(text), 0o600); err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() {
		b.kill()
		if e.t.Failed() {
			e.t.Logf("broker %s wrote:\n%s", name, b.wrote())
		}
	})
	b.start()
	return b
}

// start runs the broker, at the address that it had before if it had one.
func (b *enrolling) start() {
	b.e.t.Helper()
	ready, theirs, err := os.Pipe()
	if err != nil {
		b.e.t.Fatal(err)
	}
	defer ready.Close()
	b.cmd = exec.Command(labtest.Program(b.e.t, "-broker"), append([]string{"--config", b.file, "--listen", b.addr, "--ready-fd", "3"}, b.args...)...)
	log, err := os.OpenFile(b.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		b.e.t.Fatal(err)
	}
	defer log.Close()
	b.cmd.ExtraFiles, b.cmd.Stderr = []*os.File{theirs}, log
	err = b.cmd.Start()
	theirs.Close()
	if err != nil {
		b.e.t.Fatal(err)
	}
	ready.SetReadDeadline(time.Now().Add(labtest.Patience))
	line, err := io.ReadAll(io.LimitReader(ready, 256))
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) || len(line) == 0 {
		b.e.t.Fatalf("broker %s did not become ready: %v\n%s", b.name, err, b.wrote())
	}
	for _, fact := range strings.Fields(string(line)) {
		if at, ok := strings.CutPrefix(fact, "listen="); ok {
			b.addr = at
		}
		if at, ok := strings.CutPrefix(fact, "metrics_listen="); ok {
			b.metrics = at
		}
	}
}

// wrote returns the broker's output.
func (b *enrolling) wrote() string {
	text, err := os.ReadFile(b.log)
	if err != nil {
		b.e.t.Error(err)
	}
	return string(text)
}

// kill ends the broker with SIGKILL.
func (b *enrolling) kill() {
	if b.cmd != nil {
		b.cmd.Process.Kill()
		b.cmd.Wait()
		b.cmd = nil
	}
}

// token creates one that works once.
func (e *enrolment) token(proxy string) string {
	e.t.Helper()
	now := time.Now()
	text, err := e.keys.Token(ca.Token{Identity: "proxy " + proxy, Expires: now.Add(time.Hour).UnixMilli(), Valid: 600, Uses: 1}, now)
	if err != nil {
		e.t.Fatal(err)
	}
	return text
}

// ask enrols with a token, within a bound.
func (b *enrolling) ask(token string) (*enrol.Enrolled, error) {
	ctx, cancel := context.WithTimeout(b.e.ctx, 30*time.Second)
	defer cancel()
	return enrol.Ask(ctx, b.addr, token, "", nil)
}

func (b *enrolling) mustAsk(what, token string) *enrol.Enrolled {
	b.e.t.Helper()
	got, err := b.ask(token)
	if err != nil {
		b.e.t.Fatalf("%s, at %s: %v", what, b.name, err)
	}
	return got
}

func (b *enrolling) refuses(what, token, why string) {
	b.e.t.Helper()
	start := time.Now()
	if _, err := b.ask(token); err == nil || !strings.Contains(err.Error(), why) {
		b.e.t.Errorf("%s, at %s: %v; want %q", what, b.name, err, why)
	}
	if took := time.Since(start); took > 30*time.Second {
		b.e.t.Errorf("%s, at %s: refused after %v", what, b.name, took)
	}
}

// admin runs a command of isthmus as the admin, with --as-admin replaced.
func (b *enrolling) admin(args ...string) (stdout, stderr string, status int) {
	b.e.t.Helper()
	for i, arg := range args {
		if arg == "--as-admin" {
			args = slices.Concat(args[:i], []string{"--broker", b.addr, "--cert", "admin-ada.pem", "--tls-key", "admin-ada.key", "--ca", "ca.pem"}, args[i+1:])
		}
	}
	cmd := exec.Command(labtest.Program(b.e.t, ""), args...)
	cmd.Dir = b.e.dir
	return labtest.Run(b.e.t, cmd)
}

func (b *enrolling) status() (s broker.Status) {
	b.e.t.Helper()
	out, complaint, status := b.admin("status", "--json", "--as-admin")
	if err := json.Unmarshal([]byte(out), &s); err != nil || status != 0 {
		b.e.t.Fatalf("status of %s: %d, %v: %s", b.name, status, err, complaint)
	}
	return s
}

// figures returns the broker's metrics.
func (b *enrolling) figures() string {
	b.e.t.Helper()
	resp, err := http.Get("http://" + b.metrics + "/metrics")
	if err != nil {
		b.e.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		b.e.t.Fatal(err)
	}
	return string(text)
}

// until polls for a condition that has no notification.
func (e *enrolment) until(what string, is func() bool) {
	e.t.Helper()
	for !is() {
		select {
		case <-time.After(50 * time.Millisecond):
		case <-e.ctx.Done():
			e.t.Fatalf("waited for %s", what)
		}
	}
}

// Two brokers on an etcd of three members: each enrols, a token works once for both, a list
// uploaded to one applies at the other, and one member may fail. Without a majority, requests that
// need the store are refused in time, and all else continues.
func TestTwoBrokersShareEtcd(t *testing.T) {
	t.Parallel() // most of it is waiting
	e := newEnrolment(t)
	etcd := storetest.Start(t, 3)
	settings := fmt.Sprintf("store: %q\n", etcd.Address("grid"))
	b1, b2 := e.broker("b1", settings), e.broker("b2", settings)

	first, second := e.token("p1"), e.token("p2")
	p1 := b1.mustAsk("a token", first)
	b2.refuses("the token of the other", first, "used already")
	b2.mustAsk("another token", second)
	b1.refuses("the token of the other", second, "used already")
	labtest.AwaitAudit(t, e.ctx, b1.trail, "the refusal", func(r *audit.Record) bool { return strings.Contains(r.Reason, "used already") })

	// Of many clients that present one token at both, one gets a certificate.
	contested := e.token("p3")
	var all sync.WaitGroup
	var mu sync.Mutex
	got := 0
	for i := range 8 {
		all.Go(func() {
			_, err := []*enrolling{b1, b2}[i%2].ask(contested)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				got++
			} else if !strings.Contains(err.Error(), "used already") {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got != 1 {
		t.Errorf("%d certificates for one use, at two brokers", got)
	}

	if _, complaint, status := b1.admin("ca", "revoke", "--as-admin", "proxy", "p1"); status != 0 {
		t.Fatalf("revoke: %s", complaint)
	}
	revoked, err := control.NewCredentials(ca.ChainPEM(p1.Chain), p1.Key, e.keys.CertPEM())
	if err != nil {
		t.Fatal(err)
	}
	e.until("the list to count at the other broker", func() bool {
		_, err := enrol.Renew(e.ctx, b2.addr, revoked, nil)
		return err != nil && strings.Contains(err.Error(), "was revoked at")
	})

	etcd.Members[0].Kill()
	third := e.token("p4")
	b1.mustAsk("with two members", third)
	b2.refuses("the token of the other, with two members", third, "used already")

	etcd.Members[1].Kill()
	fourth := e.token("p5")
	b1.refuses("with one member", fourth, "is a majority of its members up")
	e.until("the status to say so", func() bool { s := b1.status().Store; return s != nil && s.Kind == "etcd" && s.Error != "" })
	if _, err := enrol.Renew(e.ctx, b2.addr, revoked, nil); err == nil || !strings.Contains(err.Error(), "was revoked at") {
		t.Errorf("who is revoked, without the store: %v", err)
	}
	b2.kill()
	b2.start() // without the store

	etcd.Members[1].Start()
	e.until("the store to be there again", func() bool { return b1.status().Store.Error == "" && b2.status().Store.Error == "" })
	b2.mustAsk("with two members again", fourth)
	b1.refuses("with two members again", fourth, "used already")
	if _, err := enrol.Renew(e.ctx, b2.addr, revoked, nil); err == nil || !strings.Contains(err.Error(), "was revoked at") {
		t.Errorf("who is revoked, after the restart: %v", err)
	}
}

// A broker is killed repeatedly while proxies enrol, two for each token. The first of the two gets
// the certificate, the other nothing, though both retry when they get no answer.
func TestBrokerKilledWhileEnrolling(t *testing.T) {
	e := newEnrolment(t)
	b := e.broker("b1", "store: broker.db\nlog: {level: error}\n")
	const tokens = 150
	done := make(chan struct{})
	var killing sync.WaitGroup
	kills := 0
	killing.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(time.Duration(1+rand.IntN(60)) * time.Millisecond): // in the middle of something
			}
			b.kill()
			b.start()
			kills++
		}
	})
	var all sync.WaitGroup
	var mu sync.Mutex
	given := make([]map[string]bool, tokens) // serial numbers
	queue := make(chan int)
	addr := b.addr
	for range 6 {
		all.Go(func() {
			for i := range queue {
				token := e.token(fmt.Sprintf("p%d", i))
				var both sync.WaitGroup
				for range 2 {
					both.Go(func() {
						ctx, cancel := context.WithTimeout(e.ctx, time.Minute)
						defer cancel()
						got, err := enrol.Ask(ctx, addr, token, "", nil)
						for err != nil && !errors.Is(err, overlay.ErrForbidden) && ctx.Err() == nil { // it was down, and received no request
							got, err = enrol.Ask(ctx, addr, token, "", nil)
						}
						mu.Lock()
						defer mu.Unlock()
						if err != nil {
							if !strings.Contains(err.Error(), "used already") {
								t.Logf("token %d: %v", i, err)
							}
							return
						}
						if given[i] == nil {
							given[i] = map[string]bool{}
						}
						given[i][string(got.Chain[0])] = true
					})
				}
				both.Wait()
			}
		})
	}
	for i := range tokens {
		queue <- i
	}
	close(queue)
	all.Wait()
	close(done)
	killing.Wait()
	lost := 0
	for i, certs := range given {
		switch {
		case len(certs) > 1:
			t.Errorf("token %d gave %d certificates", i, len(certs))
		case len(certs) == 0:
			lost++
		}
	}
	t.Logf("%d tokens, %d kills, %d tokens without a certificate", tokens, kills, lost)
	if kills < 3 || lost > tokens/4 {
		t.Errorf("%d kills, and of %d tokens %d gave nothing", kills, tokens, lost)
	}
}

// The disk of a broker is full when it starts, and fills while it serves: it starts, serves
// requests that need no write, refuses others and reports why, in its answers, its log, its status
// and its metrics; and no used token becomes valid again.
func TestBrokerOnFullDisk(t *testing.T) {
	t.Parallel() // most of it is waiting
	e := newEnrolment(t)
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=256k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(disk, 0); err != nil {
			t.Error(err)
		}
	})
	filler := filepath.Join(disk, "filler")
	fill := func() {
		f, err := os.Create(filler)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for block := make([]byte, 4096); ; {
			if _, err := f.Write(block); errors.Is(err, syscall.ENOSPC) {
				return
			} else if err != nil {
				t.Fatal(err)
			}
		}
	}
	free := func() {
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
	}
	const noSpace = "no space left on device; free space in "

	// It is full from the start.
	fill()
	b := e.broker("b1", fmt.Sprintf("metrics_listen: 127.0.0.1:0\nstore: %s/broker.db\n", disk))
	t.Cleanup(b.kill) // before the unmount
	first := e.token("p1")
	b.refuses("on a full disk", first, noSpace+disk)
	if s := b.status().Store; s == nil || !strings.Contains(s.Error, noSpace) {
		t.Errorf("the status says %+v", s)
	}
	if out, _, _ := b.admin("status", "--as-admin"); !strings.Contains(out, noSpace) {
		t.Errorf("isthmus status does not say it:\n%s", out)
	}
	if text := b.figures(); !strings.Contains(text, `isthmus_broker_store_writable{kind="bolt"} 0`) {
		t.Errorf("the metrics do not say it:\n%s", text)
	}
	labtest.AwaitAudit(t, e.ctx, b.trail, "the refusal", func(r *audit.Record) bool { return strings.Contains(r.Reason, noSpace) })
	free()
	e.until("the store to be written again", func() bool { return b.status().Store.Error == "" })
	p1 := b.mustAsk("with space again", first)
	b.refuses("used", first, "used already")

	// It fills while the broker serves: tokens are accepted until the file has no space.
	fill()
	refused := ""
	for i := 0; refused == "" && i < 200; i++ {
		token := e.token(fmt.Sprintf("q%d", i))
		if _, err := b.ask(token); err != nil {
			if refused = token; !strings.Contains(err.Error(), noSpace) {
				t.Fatalf("the %dth: %v", i, err)
			}
		}
	}
	if refused == "" {
		t.Fatal("nothing was refused")
	}
	b.refuses("used, on a full disk", first, "used already")
	creds, err := control.NewCredentials(ca.ChainPEM(p1.Chain), p1.Key, e.keys.CertPEM())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := enrol.Renew(e.ctx, b.addr, creds, nil); err != nil {
		t.Errorf("renewing, which needs no write: %v", err)
	}
	b.kill()
	b.start() // on the full disk
	b.refuses("used, after a restart on a full disk", first, "used already")
	if !strings.Contains(b.wrote(), "the store cannot be written; what needs it is refused") {
		t.Error("the log does not say it")
	}
	free()
	e.until("the status to say that all is well", func() bool { return b.status().Store.Error == "" })
	b.mustAsk("what was refused, with space again", refused)
	b.refuses("and once more", refused, "used already")
}

// A broker knows after a restart what was used and who was revoked, and hands its store over to its
// successor; a second one on the same file reports why it cannot start.
func TestBrokerKeepsItsStore(t *testing.T) {
	e := newEnrolment(t)
	used, revoked := e.token("p1"), e.token("p9")
	b := e.broker("b1", "store: broker.db\n")
	b.mustAsk("its first use", used)
	if _, complaint, status := b.admin("ca", "revoke", "--as-admin", "proxy", "p9"); status != 0 {
		t.Fatal(complaint)
	}
	b.refuses("a token of before", used, "used already")
	b.refuses("who was revoked before", revoked, "was revoked at")

	stdout, complaint, status := labtest.Run(t, exec.Command(labtest.Program(t, "-broker"), "--config", b.file, "--listen", "127.0.0.1:0"))
	if status == 0 || !strings.Contains(complaint, "another process uses it; each broker on a host needs its own file") {
		t.Errorf("a second broker on the file: status %d: %s%s", status, stdout, complaint)
	}

	b.kill()
	b.start()
	b.refuses("a token of before, after a restart", used, "used already")
	b.refuses("who was revoked before, after a restart", revoked, "was revoked at")
	if out, complaint, _ := b.admin("ca", "revoke", "--list", "ca/crl.pem", "--as-admin"); !strings.Contains(out, "stores it in "+filepath.Join(filepath.Dir(b.file), "broker.db")) {
		t.Errorf("the list after the restart: %s%s", out, complaint)
	}

	// A successor, as at an upgrade.
	if err := b.cmd.Process.Signal(syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	if err := b.cmd.Wait(); err != nil {
		t.Errorf("the predecessor: %v", err)
	}
	fresh := e.token("p2")
	b.mustAsk("at the successor", fresh)
	b.refuses("a token of before, at the successor", used, "used already")
	b.cmd = nil
	endThoseOf(t, b.file)
}

// endThoseOf ends the processes with the settings file: a successor is no child of this process
// once its predecessor has ended.
func endThoseOf(t *testing.T, settings string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	ended := 0
	for _, file := range all {
		text, err := os.ReadFile(file)
		pid, numErr := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err == nil && numErr == nil && bytes.Contains(text, []byte(settings)) && pid != os.Getpid() {
			ended++
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	if ended != 1 {
		t.Errorf("%d processes with %s, want the successor", ended, settings)
	}
}
