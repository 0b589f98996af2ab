//go:build system

package doctor

import (
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/wire"
)

// A service that accepts connections and says nothing is not taken for a frontal.
func TestLookAtASilentService(t *testing.T) {
	h := newHost(t)
	h.serve(func(c net.Conn) { io.Copy(io.Discard, c) })
	r := Conclude(Look(t.Context(), h.Subject))
	if r.Class != TLSBroken || !slices.ContainsFunc(r.Findings, func(f Finding) bool {
		return f.Status == Failed && strings.Contains(f.Evidence+f.Meaning, "neither with segments of full size")
	}) {
		t.Errorf("named %s: %+v", r.Class, r.Findings)
	}
}

// TestLookAtEveryBroker: all are observed, whichever of them is down, and the session is with one
// that is up.
func TestLookAtEveryBroker(t *testing.T) {
	h := newHost(t)
	h.serve(speak(h.pair(), &wire.ControlHello{Oldest: 1, Newest: 1}))
	s := h.Subject
	s.Address, s.Others = "127.0.0.1:1", []string{"127.0.0.1:2", h.Address}
	o := Look(t.Context(), s)
	var got []string
	for _, s := range o.Services {
		got = append(got, s.Address+" "+string(s.Connect.Outcome))
	}
	want := []string{"127.0.0.1:1 reset", "127.0.0.1:2 reset", h.Address + " connected"}
	if !slices.Equal(got, want) || o.Session.At != h.Address {
		t.Errorf("saw %q, want %q; session with %q", got, want, o.Session.At)
	}
}

// A helper that is stopped still has its connections accepted by the kernel: it must answer, too.
func TestLookAtAStoppedHelper(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", socket) // which nobody accepts from
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	l := &looker{s: Subject{Socket: socket}}
	if l.socket(); l.o.Local.SocketErr != "" {
		t.Errorf("not asked: %q", l.o.Local.SocketErr)
	}
	l.s.Door = socket
	if l.socket(); !l.o.Local.SocketSilent || !strings.Contains(l.o.Local.SocketErr, "no answer within 2s") {
		t.Errorf("stopped: %+v", l.o.Local)
	}
}
