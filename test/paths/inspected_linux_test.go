//go:build system

package paths

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/support/doctor"
	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// Sites that let out only what begins as TLS on port 443: the firewall inspects, or the HTTP proxy
// inspects its tunnels. No profile declares it, and they detect it; for one the admin's profile is
// wrong, and its helpers detect it.
const sitesInspected = "  - {name: inspected, preset: tls-only-443, nodes: 2}\n" +
	"  - {name: tunnelled, preset: connect-tls-only, nodes: 1}\n" +
	"  - {name: inner, preset: no-route/tls-only-443, nodes: 1}\n" +
	"  - {name: deceived, preset: tls-only-443, nodes: 1}\n" + labtest.SiteClosed

// undeclared are settings of frontals that leave the sites' profiles to measuring.
func undeclared(sites ...string) map[string]map[string]any {
	settings := map[string]map[string]any{}
	for _, s := range sites {
		settings["frontal "+s] = map[string]any{"profile": map[string]any{"gateway_only": s == "inner"}}
	}
	return settings
}

func TestOnlyTLSGetsOut(t *testing.T) {
	t.Parallel() // most of it is waiting
	settings := undeclared("inspected", "tunnelled", "inner", "closed")
	settings["frontal deceived"] = map[string]any{"profile": map[string]any{"egress": "any"}} // as its admin believes
	w := newWorld(t, sitesInspected, grid.Config{
		Settings: settings,
		Profile:  func(_ string, p overlay.SiteProfile) overlay.SiteProfile { return p },
	})
	s, done, err := w.Admin(t.Context(), "broker")
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	want := map[overlay.SiteID]overlay.Egress{
		"inspected": overlay.EgressTLS443, "inner": overlay.EgressTLS443,
		"tunnelled": overlay.EgressHTTPProxyTLS, "closed": overlay.EgressAny, "deceived": overlay.EgressAny,
	}
	for _, site := range awaitMeasured(t, s).Sites {
		if got := site.Profile.Egress; got != want[site.Profile.Site] {
			t.Errorf("%s: egress is %v, want %v; measured %+v", site.Profile.Site, got, want[site.Profile.Site], site.Measured)
		}
	}

	for _, c := range []struct{ from, to string }{
		{"inspected/n1", "closed/n1"}, {"closed/n1", "inspected/n2"},
		{"tunnelled/n1", "closed/n2"}, {"inspected/n1", "tunnelled/n1"}, {"inner/n1", "inspected/n2"},
		{"deceived/n1", "closed/n1"},
	} {
		j := w.JoinPair(c.from, c.to)
		w.Connect(j)
		if got := j.Near.Path.String(); !strings.HasPrefix(got, "relay through p1") {
			t.Errorf("%s to %s: %s (%s)", c.from, c.to, got, j.Near.Path.Reason)
		}
		if from, _, _ := strings.Cut(c.from, "/"); from != "closed" && !strings.Contains(j.Near.Path.Reason, "over TLS") {
			t.Errorf("%s to %s: the path's reason does not say that it is inside of TLS: %s", c.from, c.to, j.Near.Path.Reason)
		}
		w.checked(j, 3<<20)
		j.A.End(t)
		j.B.End(t)
	}

	for daemon, want := range map[string][]doctor.Class{
		"frontal inspected":   {doctor.EgressTLS, doctor.Egress443},
		"helper inspected/n1": {doctor.EgressTLS, doctor.Egress443},
		"helper tunnelled/n1": {doctor.EgressTLS, doctor.EgressProxy},
	} {
		w.DoctorReports(daemon, func() doctor.Report { return w.Doctor(daemon) }, func(r doctor.Report) error {
			for _, class := range want {
				if r.Exit != 0 || !slices.Contains(labtest.Causes(r), class.String()) {
					return fmt.Errorf("status %d, causes %q, want %v among them", r.Exit, labtest.Causes(r), class)
				}
			}
			return nil
		})
	}
}

// checked sends n bytes in each direction over a link and checks them.
func (w *world) checked(j *labtest.Pair, n int) {
	w.T.Helper()
	var ends sync.WaitGroup
	defer ends.Wait()
	text := func(side byte) []byte {
		block := sha256.Sum256([]byte{side})
		return bytes.Repeat(block[:], n/len(block))
	}
	errs := make([]error, 4)
	for i, c := range []io.ReadWriter{j.Near.Conn, j.Far.Conn} {
		ends.Go(func() { _, errs[2*i] = c.Write(text(byte(i))) })
		ends.Go(func() {
			got := make([]byte, len(text(0)))
			_, err := io.ReadFull(c, got)
			if err == nil && !bytes.Equal(got, text(byte(1-i))) {
				err = fmt.Errorf("other bytes came than were sent")
			}
			errs[2*i+1] = err
		})
	}
	ends.Wait()
	for _, err := range errs {
		if err != nil {
			w.T.Error(err)
		}
	}
}
