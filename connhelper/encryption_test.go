package connhelper

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/overlay"
)

// Each site is logged once, and again when the frontal's policy changes the decision.
func TestEncryptionIsLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	e := newEncryption(slog.New(slog.NewTextHandler(&log, nil)), "sitea")
	to := func(site overlay.SiteID) overlay.Path {
		return overlay.Path{Technique: overlay.Relay, Peer: overlay.NodeID{Site: site, Name: "n1"}}
	}
	for range 3 {
		for site, want := range map[overlay.SiteID]bool{"sitea": false, "siteb": true, "sitec": true} {
			if got := e.seal(to(site)); got != want {
				t.Errorf("%s: %v", site, got)
			}
		}
		if e.seal(overlay.Path{Peer: overlay.NodeID{Site: "siteb", Name: "n1"}}) {
			t.Error("a carrier of one node is to be encrypted")
		}
	}
	e.set(overlay.Encryption{OtherSites: true, PlainWith: []overlay.SiteID{"siteb"}})
	for range 3 {
		if e.seal(to("siteb")) || !e.seal(to("sitec")) {
			t.Error("the new policy does not hold")
		}
	}
	if n := strings.Count(log.String(), "msg=encryption"); n != 4 {
		t.Errorf("%d lines:\n%s", n, log.String())
	}
	for i := range 2 * maxLogged {
		e.seal(to(overlay.SiteID(fmt.Sprint("made-up-", i))))
	}
	if len(e.logged) > maxLogged {
		t.Errorf("%d sites are remembered", len(e.logged))
	}
}
