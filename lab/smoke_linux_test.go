package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/testload"
)

// helperKey names the helper that this program runs instead of tests. A helper runs behind Main: in
// an isolated process that a test has started.
const helperKey = "ISTHMUS_LAB_TEST_HELPER"

// helpers are the programs that a test starts by helperKey, by name.
var helpers map[string]func()

// refused is why no lab can be built here, or nil. Tests that need none run anyway.
var refused error

func TestMain(m *testing.M) {
	if !slices.Contains(os.Args, "-test.fuzzworker") { // which talks over inherited files and needs no lab
		refused = Enter()
	}
	if name := os.Getenv(helperKey); name != "" {
		if refused != nil {
			fmt.Fprintln(os.Stderr, refused)
			os.Exit(1)
		}
		time.AfterFunc(2*time.Minute, func() { panic(name + " does not end") })
		helpers[name]()
		os.Exit(0)
	}
	testload.Parallel(2)
	os.Exit(m.Run())
}

// up builds spec for one test.
func up(t *testing.T, spec Spec) *Lab {
	t.Helper()
	if refused != nil {
		t.Fatal(refused)
	}
	l, err := Up(context.Background(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("lab: %v", err)
		}
	})
	return l
}

// TestSmoke builds a small lab: a connection out of a site passes its firewall, one into it is
// refused, and all ends with the lab. Everything else about labs needs the tag system.
func TestSmoke(t *testing.T) {
	if refused != nil {
		t.Skip(refused)
	}
	l := up(t, Spec{Sites: []Site{{Name: "a", Preset: "stateful-reject", Nodes: Nodes(1)}, {Name: "pub", Preset: Public, Nodes: []string{"x"}}}})
	inside, pub := l.Host("a/n1"), l.Host("pub/x")
	listen := func(h *Host) netip.AddrPort {
		ln, err := h.Listen("tcp4", ":443")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ln.Close() })
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				io.WriteString(c, h.Name())
				c.Close()
			}
		}()
		return netip.AddrPortFrom(h.Addr(), 443)
	}
	dial := func(from *Host, to netip.AddrPort) (string, error) {
		c, err := from.Dial(t.Context(), "tcp4", to.String())
		if err != nil {
			return "", err
		}
		defer c.Close()
		text, err := io.ReadAll(c)
		return string(text), err
	}
	if text, err := dial(inside, listen(pub)); text != "pub/x" || err != nil {
		t.Errorf("out of the site: %q, %v", text, err)
	}
	if text, err := dial(pub, listen(inside)); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("into the site: %q, %v, want a refusal", text, err)
	}
	cmd := inside.Command(t.Context(), "sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("a command outlived the lab")
	}
	if _, err := inside.Dial(t.Context(), "tcp4", "192.0.2.1:1"); err == nil || !strings.Contains(err.Error(), "a/n1") {
		t.Errorf("a dial on a closed lab: %v", err)
	}
}
