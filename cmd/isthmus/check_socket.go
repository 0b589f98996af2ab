package main

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/isthmus-grid/isthmus/broker"
	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
	"github.com/isthmus-grid/isthmus/connhelper"
	"github.com/isthmus-grid/isthmus/frontal"
	"github.com/isthmus-grid/isthmus/internal/daemon"
	"github.com/isthmus-grid/isthmus/proxy"
)

// socketUnit is the suffix of systemd's socket units.
const socketUnit = ".socket"

// checkSocketUnit checks a socket unit for one of the daemons: whether the daemon accepts what
// systemd passes. The rest of the unit is for systemd to check (systemd-analyze verify).
func checkSocketUnit(file string, text []byte) []cmdline.Finding {
	var all []cmdline.Finding
	note := func(severity string, line int, key, format string, args ...any) {
		all = append(all, cmdline.Finding{Severity: severity, File: file, Line: line, Key: key, Text: fmt.Sprintf(format, args...)})
	}
	name, service := "", unitOf(file)
	section, streams, nameLine := "", 0, 0
	for i, raw := range strings.Split(string(text), "\n") {
		line := strings.TrimSpace(raw)
		if line == "" || line[0] == '#' || line[0] == ';' {
			continue
		}
		if line[0] == '[' {
			section = line
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		if !ok {
			note(cmdline.Severe, i+1, "", "want KEY=VALUE or a [Section]")
		}
		if section != "[Socket]" {
			continue
		}
		switch key {
		case "ListenStream":
			streams++
			if !tcpAddress(value) {
				note(cmdline.Severe, i+1, key, "%q is neither ADDRESS:PORT nor a port; the daemons listen on TCP only", value)
			}
		case "ListenDatagram", "ListenSequentialPacket", "ListenFIFO", "ListenNetlink", "ListenSpecial", "ListenMessageQueue":
			note(cmdline.Severe, i+1, key, "no daemon accepts such a socket; want ListenStream")
		case "Accept":
			if slices.Contains([]string{"yes", "true", "on", "1"}, strings.ToLower(value)) {
				note(cmdline.Severe, i+1, key, "one daemon serves all connections; want no, or omit it")
			}
		case "FileDescriptorName":
			name, nameLine = value, i+1
		case "Service":
			service = strings.TrimSuffix(value, ".service")
		}
	}
	keys, ok := listenKeys()[service]
	if !ok {
		note(cmdline.Severe, 0, "Service", "this is for %s; the daemons' units are isthmus-broker, isthmus-frontal, isthmus-proxy and isthmus-helper: name the file after one, or give Service=", service)
		return all
	}
	switch {
	case name == "":
		note(cmdline.Severe, 0, "FileDescriptorName", "not given; want the name of the setting whose address this is: one of %s", strings.Join(keys, ", "))
	case !slices.Contains(keys, name):
		note(cmdline.Severe, nameLine, "FileDescriptorName", "%q is no setting of %s that listens; want one of %s", name, service, strings.Join(keys, ", "))
	}
	switch {
	case streams == 0:
		note(cmdline.Severe, 0, "ListenStream", "not given; want the address of the setting, ADDRESS:PORT")
	case streams > 1 && name != "listen":
		note(cmdline.Minor, 0, "ListenStream", "given %d times; the setting has one address", streams)
	}
	return all
}

// unitOf returns the service of a socket unit, from its file's name: that of
// isthmus-frontal.socket, and that of isthmus-frontal-data.socket unless it says Service=.
func unitOf(file string) string { return strings.TrimSuffix(filepath.Base(file), socketUnit) }

// tcpAddress reports whether systemd parses the text as a TCP address.
func tcpAddress(text string) bool {
	if port, err := strconv.ParseUint(text, 10, 16); err == nil {
		return port > 0
	}
	at, err := netip.ParseAddrPort(text)
	return err == nil && at.Port() > 0
}

// listenKeys are each daemon's settings that take a TCP socket, by its unit.
func listenKeys() map[string][]string {
	all := map[string][]string{}
	for unit, keys := range map[string][]string{
		"isthmus-broker": daemon.Keys[broker.Config](), "isthmus-frontal": daemon.Keys[frontal.Config](),
		"isthmus-proxy": daemon.Keys[proxy.Config](), "isthmus-helper": daemon.Keys[connhelper.Config](),
	} {
		for _, k := range keys {
			if strings.HasSuffix(k, "listen") && k != "stun_listen" { // that one is for UDP too
				all[unit] = append(all[unit], k)
			}
		}
	}
	return all
}
