package broker

import (
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/daemon"
	"github.com/isthmus-grid/isthmus/internal/daemon/daemontest"
)

func TestSampleSettings(t *testing.T) { daemontest.Sample[Config](t, Name) }

func TestSettingsRefused(t *testing.T) {
	const tls = "tls: {cert: a, key: b, ca: c}\n"
	for _, tc := range []struct{ text, fault string }{
		{tls, ""},
		{"listen: here\n" + tls, "listen"},
		{tls + "proxy_choice: best\n", "least-loaded"},
		{tls + "lease: 1ms\n", "lease"},
		{tls + "limits: {waiting: 0}\n", "limits.waiting"},
		{tls + "proxy_chioce: round-robin\n", "proxy_choice"},
		{"", "tls.cert"},
	} {
		_, err := daemon.Parse[Config]("broker.yaml", []byte(tc.text))
		if tc.fault == "" && err != nil || tc.fault != "" && (err == nil || !strings.Contains(err.Error(), tc.fault)) {
			t.Errorf("%q: %v, want %q", tc.text, err, tc.fault)
		}
	}
}

func TestNewWantsABrokersCertificate(t *testing.T) {
	g := newGrid(t)
	_, err := New(DefaultConfig(), g.credentials(control.Identity{Role: control.RoleFrontal, Site: "sitea"}), g.log)
	want := `the certificate is that of frontal sitea, not of a broker; issue one for "broker NAME"`
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
