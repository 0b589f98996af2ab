package rules

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// hardening lists the settings that every unit must have. The rest of a unit depends on its daemon.
var hardening = []string{
	"Type=notify", "User=isthmus", "NoNewPrivileges=yes", "ProtectSystem=strict", "ProtectHome=yes", "PrivateTmp=yes",
	"PrivateDevices=yes", "ProtectKernelTunables=yes", "ProtectKernelModules=yes", "ProtectControlGroups=yes",
	"MemoryDenyWriteExecute=yes", "RestrictNamespaces=yes", "RestrictSUIDSGID=yes", "SystemCallFilter=@system-service",
	"RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6",
}

func TestSystemdUnits(t *testing.T) {
	for name, capabilities := range map[string]string{
		"broker": "CAP_NET_BIND_SERVICE", "frontal": "", "proxy": "CAP_NET_BIND_SERVICE", "helper": "",
	} {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join(labtest.Root, "deploy", "systemd", "isthmus-"+name+".service"))
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(string(text), "\n")
			for _, want := range append([]string{
				"ExecStart=/usr/bin/isthmus-" + name + " --config /etc/isthmus/" + name + ".yaml",
				"CapabilityBoundingSet=" + capabilities,
				"AmbientCapabilities=" + capabilities,
				map[bool]string{true: "MemoryMax=75%", false: "TasksMax=512"}[name == "helper"],
			}, hardening...) {
				if !slices.Contains(lines, want) {
					t.Errorf("no line %q", want)
				}
			}
		})
	}
}

// The starter may change its user and nothing else, and jobs do not end with it.
func TestStarterUnit(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(labtest.Root, "deploy", "systemd", "isthmus-starter.service"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	for _, want := range []string{
		"ExecStart=/usr/bin/isthmus-starter --config /etc/isthmus/starter.yaml", "CapabilityBoundingSet=CAP_SETUID CAP_SETGID",
		"AmbientCapabilities=", "NoNewPrivileges=yes", "KillMode=process", "RestrictSUIDSGID=yes",
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("no line %q", want)
		}
	}
}

// TestDropIns: the privileges of each technique that needs some are given in one place, and are no
// more than needed.
func TestDropIns(t *testing.T) {
	for file, want := range map[string][]string{
		"traversing.conf": {"[Service]", "CapabilityBoundingSet=CAP_NET_RAW", "AmbientCapabilities=CAP_NET_RAW", "PrivateUsers=no", "RestrictAddressFamilies=AF_PACKET"},
		"port443.conf":    {"[Service]", "CapabilityBoundingSet=CAP_NET_BIND_SERVICE", "AmbientCapabilities=CAP_NET_BIND_SERVICE", "PrivateUsers=no"},
	} {
		text, err := os.ReadFile(filepath.Join(labtest.Root, "deploy", "systemd", file))
		if err != nil {
			t.Fatal(err)
		}
		var settings []string
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
				settings = append(settings, line)
			}
		}
		if !slices.Equal(settings, want) {
			t.Errorf("%s: settings %q, want %q", file, settings, want)
		}
	}
}
