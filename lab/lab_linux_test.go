//go:build system

package lab

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
)

// twoSites is a small lab with a public host.
func twoSites() Spec {
	return Spec{Sites: []Site{
		{Name: "alpha", Preset: "stateful", Nodes: Nodes(2)},
		{Name: "beta", Preset: "no-route/egress-443", Nodes: []string{"login"}},
		{Name: "pub", Preset: Public, Nodes: []string{"broker", "relay"}},
	}}
}

func BenchmarkUp(b *testing.B) {
	for _, n := range []int{2, 40, 60} {
		b.Run(fmt.Sprintf("sites=%d", n), func(b *testing.B) {
			for b.Loop() {
				l, err := Up(context.Background(), manySites(n))
				if err != nil {
					b.Fatal(err)
				}
				if err := l.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// manySites has n sites of two nodes each.
func manySites(n int) Spec {
	var spec Spec
	for i := range n {
		spec.Sites = append(spec.Sites, Site{Name: fmt.Sprintf("s%d", i), Preset: "stateful", Nodes: Nodes(2)})
	}
	return spec
}

func TestManySites(t *testing.T) {
	spec := manySites(40)
	spec.Sites = append(spec.Sites, Site{Name: "pub", Preset: Public, Nodes: []string{"hub"}})
	l := up(t, spec)
	for _, s := range spec.Sites[:40] {
		banner(t, l, "pub/hub", 443, s.Name+"/n2")
	}
}

// TestUpAtOnce builds labs concurrently, with rules that have sets.
func TestUpAtOnce(t *testing.T) {
	spec := Spec{Sites: []Site{{Name: "a", Preset: "nat-double", Nodes: Nodes(1)}, {Name: "b", Preset: "nat-random", Nodes: Nodes(1)}}}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			l, err := Up(context.Background(), spec)
			if err != nil {
				t.Error(err)
				return
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

func TestUpNamesWhatIsWrong(t *testing.T) {
	_, err := Up(context.Background(), Spec{})
	if err == nil || !strings.Contains(err.Error(), "no site") {
		t.Errorf("an empty spec: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Up(ctx, twoSites()); err == nil || !strings.Contains(err.Error(), context.Canceled.Error()) {
		t.Errorf("a cancelled context: %v", err)
	}
	l := up(t, twoSites())
	if _, err := l.Lookup("alpha/n9"); err == nil || !strings.Contains(err.Error(), `"alpha/n2"`) {
		t.Errorf("an unknown host: %v", err)
	}
	if err := l.Cut("alpha", "gamma"); err == nil || !strings.Contains(err.Error(), `"gamma"`) {
		t.Errorf("an unknown site: %v", err)
	}
}

func TestStay(t *testing.T) {
	file := writeSpec(t, "sites: [{name: a, preset: nat}, {name: p, preset: public, nodes: [x]}]")
	ctx, cancel := context.WithCancel(context.Background())
	out := &firstWrites{want: "Ctrl-C", then: cancel}
	if err := Stay(ctx, file, out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"a/n1", "10.1.0.11", "100.64.1.2", "203.0.113.2", "nsenter", "MESSAGES"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
}

// firstWrites calls then once want has been written to it.
type firstWrites struct {
	bytes.Buffer
	want string
	then func()
}

func (w *firstWrites) Write(p []byte) (int, error) {
	n, err := w.Buffer.Write(p)
	if strings.Contains(w.String(), w.want) {
		w.then()
	}
	return n, err
}

func writeSpec(t *testing.T, text string) string {
	t.Helper()
	file := t.TempDir() + "/lab.yaml"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestRunAt(t *testing.T) {
	file := writeSpec(t, "sites: [{name: a, preset: nat, nodes: 2}]")
	for _, c := range []struct {
		at     string
		argv   []string
		status int
		err    string
	}{
		{"", []string{"sh", "-c", "grep -q 10.1.0.11 /proc/net/fib_trie"}, 0, ""},
		{"a/n2", []string{"sh", "-c", "grep -q 10.1.0.12 /proc/net/fib_trie && exit 5"}, 5, ""},
		{"a/gw", []string{"sh", "-c", "kill -TERM $$"}, 143, ""},
		{"a/n3", []string{"true"}, 1, `no host "a/n3"`},
		{"", []string{"/no/such/program"}, 127, "a/n1"},
		{"", nil, 127, "no command"},
	} {
		status, err := RunAt(context.Background(), file, c.at, c.argv)
		if status != c.status || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("at %q %q: status %d, %v; want %d, %q", c.at, c.argv, status, err, c.status, c.err)
		}
	}
}

// Every host has the spec's window, and without one the largest.
func TestWindow(t *testing.T) {
	for window, want := range map[int64]string{0: "4096 131072 33554432", 64 << 10: "4096 65536 65536"} {
		t.Run(fmt.Sprint(window), func(t *testing.T) {
			l := up(t, Spec{Window: window, Sites: []Site{{Name: "a", Preset: "open", Nodes: Nodes(1)}, {Name: "p", Preset: Public, Nodes: []string{"x"}}}})
			for _, h := range l.Hosts() {
				err := h.Do(func() error {
					text, err := os.ReadFile("/proc/sys/net/ipv4/tcp_rmem")
					if got := strings.Join(strings.Fields(string(text)), " "); got != want {
						t.Errorf("%s: %s, want %s", h.Name(), got, want)
					}
					return err
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
}
