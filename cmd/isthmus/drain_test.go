package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/daemon"
)

func TestDrainMistakes(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		words  []string
		status int
		says   string
	}{
		{[]string{"drain"}, 2, "drain: want one of broker, frontal, proxy, helper, or --socket"},
		{[]string{"drain", "prox"}, 2, `drain: "prox": want one of broker`},
		{[]string{"drain", "--socket", "x", "proxy"}, 2, "drain: want one of"},
		{[]string{"drain", "--wait", "-1s", "proxy"}, 2, "drain: --wait"},
		{[]string{"drain", "--socket", filepath.Join(dir, "none")}, 1, "no daemon listens there: it does not run, or has another admin_socket"},
	} {
		r := isthmus(t, dir, c.words...)
		if r.status != c.status || !strings.Contains(strings.Join(strings.Fields(r.stderr), " "), c.says) {
			t.Errorf("%q: status %d, %q; want %d, %q", c.words, r.status, r.stderr, c.status, c.says)
		}
	}
}

func TestDrainLine(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for want, p := range map[string]daemon.Progress{
		"isthmus-broker (process 7) drains":                            {Daemon: "isthmus-broker", PID: 7, Until: now},
		"isthmus-proxy (process 7) drains: 3 links left":               {Daemon: "isthmus-proxy", PID: 7, What: "links", Left: 3},
		"isthmus-proxy (process 7) drains: 3 links left, cut in 4m59s": {Daemon: "isthmus-proxy", PID: 7, What: "links", Left: 3, Until: now.Add(4*time.Minute + 59*time.Second)},
		"isthmus-frontal (process 7) drains: 1 links left, cut in 0s":  {Daemon: "isthmus-frontal", PID: 7, What: "links", Left: 1, Until: now.Add(-time.Second)},
	} {
		if got := drainLine(p, now); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
