//go:build system

package lab

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A host's commands, and what they start, are in a group with its quota, others are not, and nothing is left of it.
func TestHostQuota(t *testing.T) {
	l, err := Up(context.Background(), Spec{Sites: []Site{{Name: "a", Preset: "open", Nodes: Nodes(2), CPU: []float64{.05}}, {Name: "b", Preset: "open", Nodes: Nodes(1)}}})
	if errors.Is(err, errNoQuota) {
		t.Skip(err) // as an ordinary user
	}
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	groups := func(host string) string {
		out, err := l.Host(host).Command(context.Background(), "sh", "-c", "sh -c 'cat /proc/self/cgroup'").Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	for _, host := range []string{"a/n1", "a/n2"} {
		if q := l.Host(host).quota; q == nil || !strings.Contains(groups(host), "/"+filepath.Base(q.dir)+"\n") {
			t.Errorf("%s: no quota, or its commands are elsewhere: %s", host, groups(host))
		}
	}
	if strings.Contains(groups("b/n1"), "isthmus-lab-") || l.Host("a/gw").quota != nil {
		t.Error("a host without a quota has one")
	}
	dir := l.Host("a/n1").quota.dir
	if err := l.Host("a/n1").Command(context.Background(), "sleep", "1000").Start(); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left: %v", dir, err)
	}
}
