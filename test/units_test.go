package test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// hardening is what no unit may lack. The rest of a unit is its daemon's own.
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
			text, err := os.ReadFile(filepath.Join("..", "deploy", "systemd", "isthmus-"+name+".service"))
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(string(text), "\n")
			for _, want := range append([]string{
				"ExecStart=/usr/bin/isthmus-" + name + " --config /etc/isthmus/" + name + ".yaml",
				"CapabilityBoundingSet=" + capabilities,
				"AmbientCapabilities=" + capabilities,
			}, hardening...) {
				if !slices.Contains(lines, want) {
					t.Errorf("no line %q", want)
				}
			}
		})
	}
}
