//go:build system

package faults

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/pki/ca"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// saidTwice returns a fragment of four words, or an address or path, that a text contains twice, or
// "". Punctuation at the end of words is ignored.
func saidTwice(text string) string {
	words := strings.Fields(text)
	for i, w := range words {
		words[i] = strings.Trim(w, `.,;:()"'`)
	}
	seen := map[string]bool{}
	for _, w := range words {
		if strings.ContainsAny(w, ":/") && seen[w] {
			return w
		}
		seen[w] = true
	}
	for i := range max(len(words)-3, 0) {
		fragment := strings.Join(words[i:i+4], " ")
		if seen[fragment] {
			return fragment
		}
		seen[fragment] = true
	}
	return ""
}

func TestSaidTwice(t *testing.T) {
	for text, want := range map[string]string{
		"a b c d": "",
		"the broker at x: no route: the broker at x: lost": "the broker at x",
		"broker at 127.0.0.1:9: dial tcp 127.0.0.1:9: no":  "127.0.0.1:9",
		"one two three four, five one two three: four":     "one two three four",
	} {
		if got := saidTwice(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// The error of a command that finds no daemon, or one that hangs up, violates the protocol or
// refuses, states each fact once, and names the daemon.
func TestErrorsSayAThingOnce(t *testing.T) {
	labtest.NeedLab(t)
	dir := t.TempDir()
	program := labtest.Program(t, "")
	must := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(program, args...)
		cmd.Dir = dir
		out, complaint, status := labtest.Run(t, cmd)
		if status != 0 {
			t.Fatalf("isthmus %s: %s", strings.Join(args, " "), complaint)
		}
		return strings.TrimSpace(out)
	}
	must("ca", "init", "grid")
	must("ca", "issue", "--out", "own", "admin", "ax")
	must("ca", "issue", "--out", "own", "helper", "sa/n1")
	must("ca", "init", "--dir", "ca2", "grid")
	must("ca", "issue", "--dir", "ca2", "--out", "foreign", "admin", "ax")
	token := must("ca", "token", "helper", "sa/n1")
	authority, err := ca.Load(filepath.Join(dir, "ca"))
	if err != nil {
		t.Fatal(err)
	}

	answers := map[string]func(net.Conn){
		"hangs up":       func(c net.Conn) { c.Close() },
		"talks nonsense": func(c net.Conn) { c.Write([]byte("HTTP/1.0 400 Bad Request\r\n\r\n")); c.Close() },
	}
	at := map[string]string{"is absent": "127.0.0.1:9", "has no address": "nowhere.invalid:443"}
	sockets := map[string]string{"is absent": filepath.Join(dir, "absent.sock")}
	for what, answer := range answers {
		at[what] = answering(t, "tcp", "127.0.0.1:0", answer)
		sockets[what] = filepath.Join(dir, what[:5]+".sock")
		answering(t, "unix", sockets[what], answer)
		answering(t, "unix", sockets[what]+".node", answer)
	}
	at["refuses"] = refusing(t, authority, fmt.Errorf("%w: nobody is let in", overlay.ErrForbidden))
	at["knows nothing"] = refusing(t, authority, nil)

	var failing [][]string
	for _, addr := range at {
		asked := []string{"--broker", addr, "--cert", "own/admin-ax.pem", "--tls-key", "own/admin-ax.key", "--ca", "own/ca.pem"}
		failing = append(failing, slices.Concat([]string{"status"}, asked), slices.Concat([]string{"plan"}, asked, []string{"sa", "sb"}),
			[]string{"status", "--broker", addr, "--cert", "foreign/admin-ax.pem", "--tls-key", "foreign/admin-ax.key", "--ca", "foreign/ca.pem"},
			[]string{"ca", "enroll", "--token", token, "--broker", addr},
			[]string{"ca", "renew", "--broker", addr, "--cert", "own/helper-sa-n1.pem", "--tls-key", "own/helper-sa-n1.key", "--ca", "own/ca.pem"},
			[]string{"ca", "revoke", "--broker", addr, "--cert", "own/admin-ax.pem", "--tls-key", "own/admin-ax.key", "--ca", "own/ca.pem", "user", "bob"})
	}
	for _, socket := range sockets {
		for _, cmd := range [][]string{{"hosts"}, {"ps"}, {"kill", "j1"}, {"run", "-n", "2", "--hosts", "sa/n1", "/bin/true"}} {
			failing = append(failing, slices.Concat(cmd[:1], []string{"--helper", socket}, cmd[1:]))
		}
	}
	for _, args := range failing {
		cmd := exec.Command(program, args...)
		cmd.Dir = dir
		out, complaint, status := labtest.Run(t, cmd)
		t.Logf("%s\n\t%s", strings.Join(args, " "), complaint)
		if twice := saidTwice(complaint); status == 0 || twice != "" {
			t.Errorf("isthmus %s: status %d, says twice %q:\n%s%s", strings.Join(args, " "), status, twice, out, complaint)
		}
	}
}

// answering listens and handles every connection until the test ends.
func answering(t *testing.T, network, addr string, answer func(net.Conn)) string {
	t.Helper()
	ln, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			answer(c)
		}
	})
	t.Cleanup(func() { ln.Close(); served.Wait() })
	return ln.Addr().String()
}

// refusing is a broker that refuses every session for the given reason, or without one answers no
// calls.
func refusing(t *testing.T, by *ca.CA, reason error) string {
	t.Helper()
	creds, err := by.Credentials(control.Identity{Role: control.RoleBroker, Name: "bx"})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := control.NewEndpoint(creds, slog.New(slog.DiscardHandler), nil)
	var served sync.WaitGroup
	ctx, stop := context.WithCancel(context.Background())
	served.Go(func() { e.Serve(ctx, ln, func(control.Identity) error { return reason }, nil) })
	t.Cleanup(func() { stop(); served.Wait(); e.Close() })
	return ln.Addr().String()
}
