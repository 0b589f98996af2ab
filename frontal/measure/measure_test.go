package measure

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-grid/isthmus/internal/nat/probe"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Without a doubt the site is measured when the period is over, and an early doubt waits.
func TestAwaitDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		mo := New(Options{Settings: func() Settings { return Settings{} }, Log: slog.New(slog.DiscardHandler)})
		if !mo.awaitDoubt(ctx, time.Hour, time.Millisecond) {
			t.Error("measuring ended")
		}
		mo.Doubt()
		mo.Doubt() // counts as one
		if !mo.awaitDoubt(ctx, time.Millisecond, time.Hour) || mo.Doubted() {
			t.Error("the doubt is not over")
		}
		mo.Doubt()
		ended := make(chan bool, 1)
		go func() { ended <- mo.awaitDoubt(ctx, time.Hour, time.Hour) }()
		synctest.Wait()
		if mo.Doubted() {
			t.Error("the doubt is not heard")
		}
		select {
		case <-ended:
			t.Error("it was measured too soon")
		default:
		}
		cancel()
		if <-ended {
			t.Error("it goes on after the end")
		}
	})
}

// A measurement that reaches nothing takes nothing away from a site before another agrees, and not within minutes of
// a connection with another site either.
func TestSilenceIsConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mo := New(Options{
			Settings:  func() Settings { return Settings{Unset: probe.Fields()} },
			Log:       slog.New(slog.DiscardHandler),
			IsReached: func() bool { return true }, Adopted: func(bool) {},
		})
		measured := func(egress, udp string) overlay.SiteProfile {
			mo.Adopt(mo.Steady(probe.Measured{Findings: []probe.Finding{{Field: probe.Egress, Value: egress}, {Field: probe.UDP, Value: udp}}}))
			return mo.Profile()
		}
		want := func(when string, p overlay.SiteProfile, egress overlay.Egress, udp bool) {
			t.Helper()
			if p.Egress != egress || p.UDP != udp {
				t.Errorf("%s: egress %v, UDP %v", when, p.Egress, p.UDP)
			}
		}
		want("at first", measured("none", "true"), overlay.EgressAny, true)
		want("confirmed", measured("none", "true"), overlay.EgressNone, true)
		want("reached again", measured("443", "true"), overlay.Egress443, true)
		mo.Worked(overlay.Reversed, true) // the other site dialled
		want("in mid-job", measured("none", "true"), overlay.Egress443, true)
		want("in mid-job, but all were dialled", measured("none", "true"), overlay.EgressNone, true)
		measured("443", "true")
		mo.Worked(overlay.Direct, false)
		measured("none", "true")
		want("all were dialled there, too", measured("none", "true"), overlay.EgressNone, true)
		measured("443", "true")
		measured("none", "false")
		mo.Worked(overlay.Relay, true)
		want("in mid-job, with a link by relay", measured("none", "false"), overlay.Egress443, false)
		want("datagrams again", measured("none", "true"), overlay.Egress443, true)
		mo.Worked(overlay.HolePunching, false)
		measured("none", "false")
		want("in mid-job, with a link by hole punching", measured("none", "false"), overlay.Egress443, true)
		time.Sleep(workedFor)
		want("long after", measured("none", "false"), overlay.EgressNone, false)
	})
}
