package proxy

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/account/audit"
	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/limit/quota"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// peerStream is a stream of which only the peer's address is asked.
type peerStream struct {
	carrier.Stream
	peer net.TCPAddr
}

func (s *peerStream) RemoteAddr() net.Addr { return &s.peer }

// At a link's end the logs have it before its place is free, and each sink has it once.
func TestWhenEnded(t *testing.T) {
	trail, err := audit.Open(audit.Config{Folder: t.TempDir(), Size: 1 << 20, OnFailure: "go-on"}, "proxy p1", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	logged := new(logBuffer)
	s := New(Settings{Name: "p1", Audit: trail}, slog.New(slog.NewTextHandler(logged, nil)))
	ticket := wire.Ticket{Job: job, Asker: 2, Target: 3, Principal: overlay.Principal{User: "alice", Project: "climate"}}
	of := func(which uint8) *end {
		own := ticket
		own.End = which
		return &end{conn: &peerStream{peer: net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1000 + int(which)}}, ticket: &own, since: time.Now()}
	}
	l := newLink(of(1), of(0)) // in the order in which they came
	l.joined = time.Now()
	if l.throttle, err = s.set.Quota.Admit(quota.Owner{User: "alice", Project: "climate"}, func() uint64 { return 12 }); err != nil {
		t.Fatal(err)
	}
	s.links[l] = struct{}{}
	changed := s.Changed()

	e := l.ended("p1", carrier.Stats{AToB: 5, BToA: 7, Copied: 12}, errors.New("cut"))
	l.throttle.Close()
	state := func() string {
		st, notified := s.Status(), false
		select {
		case <-changed:
			notified = true
		default:
		}
		return fmt.Sprintf("%d lines, %d records, %d live, %d joined, %d broken, %d copied, %d of the project, %d waiting for their sites, notified %v",
			strings.Count(logged.String(), "link ended"), st.Audit.Waiting, st.Links, st.Joined, st.Broken, st.Copied, s.byProject()["climate"], len(s.siteTraffic.orphan), notified)
	}
	want := []string{
		"2 lines, 0 records, 1 live, 1 joined, 0 broken, 0 copied, 0 of the project, 0 waiting for their sites, notified false",
		"2 lines, 1 records, 1 live, 1 joined, 0 broken, 0 copied, 0 of the project, 0 waiting for their sites, notified false",
		"2 lines, 1 records, 0 live, 1 joined, 1 broken, 12 copied, 12 of the project, 1 waiting for their sites, notified false",
		"2 lines, 1 records, 0 live, 1 joined, 1 broken, 12 copied, 12 of the project, 1 waiting for their sites, notified true",
	}
	all := s.whenEnded()
	if len(all) != len(want) {
		t.Fatalf("%d subscribers", len(all))
	}
	for i, take := range all {
		take(l, e)
		if got := state(); got != want[i] {
			t.Errorf("after subscriber %d: %s\nwant %s", i, got, want[i])
		}
	}
	for _, line := range []string{
		"rank=2 peer=3 user=alice project=climate from=192.0.2.1:1000 form=plain sent=5 received=7",
		"rank=3 peer=2 user=alice project=climate from=192.0.2.1:1001 form=plain sent=7 received=5",
	} {
		if !strings.Contains(logged.String(), line) {
			t.Errorf("no line %s in\n%s", line, logged.String())
		}
	}
}
