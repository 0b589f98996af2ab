// Package storetest runs an etcd for tests, each member a process, from etcd's Go module: nothing
// needs to be installed. It has no state beyond the test's.
package storetest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/store"
)

// startTimeout bounds the start of a cluster.
const startTimeout = 40 * time.Second

// Cluster is an etcd cluster. Its members end with the test.
type Cluster struct {
	Members []*Member
}

// Member is one process of a Cluster.
type Member struct {
	t       testing.TB
	command []string
	client  string

	cmd *exec.Cmd // nil while it is not running
	in  io.Closer
	log bytes.Buffer
}

// source returns the folder of the member's module.
func source() (string, error) {
	mod, err := exec.Command("go", "env", "GOMOD").Output()
	return filepath.Join(filepath.Dir(strings.TrimSpace(string(mod))), "test", "etcd"), err
}

// Fetch downloads the modules that Start needs: those of the programs have no etcd. A TestMain calls it
// whose tests run where there is no network.
func Fetch() error {
	dir, err := source()
	if err != nil {
		return err
	}
	if out, err := exec.Command("go", "list", "-C", dir, "-deps", ".").CombinedOutput(); err != nil {
		return fmt.Errorf("the modules of test/etcd: %w: %s", err, out)
	}
	return nil
}

// program builds the member's program, once per process.
var program = sync.OnceValues(func() (string, error) {
	source, err := source()
	if err != nil {
		return "", err
	}
	// The go command links a tool into its cache; with -n it prints the path, and runs nothing. What it
	// downloads it lists on its standard error.
	var complaints bytes.Buffer
	cmd := exec.Command("go", "tool", "-C", source, "-n", "etcd")
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, complaints.Bytes())
	}
	return strings.TrimSpace(string(out)), nil
})

// Start runs a cluster of a number of members and waits until it has a leader.
func Start(t testing.TB, members int) *Cluster {
	t.Helper()
	file, err := program()
	if err != nil {
		t.Fatalf("the etcd of test/etcd was not built: %v", err)
	}
	var args []string
	c := &Cluster{}
	for i := range members {
		client, peer := freeAddress(t), freeAddress(t)
		args = append(args, fmt.Sprintf("m%d=%s/%s", i, client, peer))
		c.Members = append(c.Members, &Member{t: t, client: client})
	}
	dir := t.TempDir()
	for i, m := range c.Members {
		m.command = append([]string{file, fmt.Sprintf("m%d", i), filepath.Join(dir, fmt.Sprint(i))}, args...)
	}
	t.Cleanup(func() {
		for _, m := range c.Members {
			m.Kill()
			if t.Failed() {
				t.Logf("etcd %s:\n%s", m.client, m.log.Bytes())
			}
		}
	})
	c.startAll(t)
	return c
}

func (c *Cluster) startAll(t testing.TB) {
	t.Helper()
	var all []<-chan error
	for _, m := range c.Members {
		all = append(all, m.start())
	}
	for _, ready := range all {
		select {
		case err := <-ready:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(startTimeout):
			t.Fatalf("etcd is not up after %v", startTimeout)
		}
	}
}

// Address returns the cluster's address, with a prefix of the keys.
func (c *Cluster) Address(prefix string) store.Address {
	a := store.Address{Prefix: prefix}
	for _, m := range c.Members {
		a.Hosts = append(a.Hosts, m.client)
	}
	return a
}

// start runs the member and reports when it is part of a cluster that has a leader.
func (m *Member) start() <-chan error {
	ready := make(chan error, 1)
	m.cmd = exec.Command(m.command[0], m.command[1:]...)
	m.cmd.Stderr = &m.log
	in, err := m.cmd.StdinPipe() // the member ends when this is closed, also when this process is killed
	if err != nil {
		ready <- err
		return ready
	}
	m.in = in
	out, err := m.cmd.StdoutPipe()
	if err == nil {
		err = m.cmd.Start()
	}
	if err != nil {
		m.cmd = nil
		ready <- err
		return ready
	}
	go func() { // ends with the member's first line, or with the member
		line, err := bufio.NewReader(out).ReadString('\n')
		if err == nil && line != "ready\n" {
			err = fmt.Errorf("it said %q", line)
		}
		ready <- err
	}()
	return ready
}

// Start runs the member again and waits until it is part of the cluster.
func (m *Member) Start() {
	m.t.Helper()
	select {
	case err := <-m.start():
		if err != nil {
			m.t.Fatalf("etcd %s: %v", m.client, err)
		}
	case <-time.After(startTimeout):
		m.t.Fatalf("etcd %s is not up after %v", m.client, startTimeout)
	}
}

// Kill kills the member (SIGKILL), if it is running.
func (m *Member) Kill() {
	if m.cmd == nil {
		return
	}
	m.cmd.Process.Kill()
	m.in.Close()
	m.cmd.Wait()
	m.cmd = nil
}

func freeAddress(t testing.TB) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}
