package lab

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// ErrNotIsolated is returned by Up in a process that did not go through Enter.
var ErrNotIsolated = errors.New("lab: this process is not in namespaces of its own; call lab.Main first thing in main or TestMain")

// ErrNotLinux is returned by everything in this package that needs namespaces on systems without
// them.
var ErrNotLinux = errors.New("the lab needs Linux network namespaces")

// Main is Enter for func main and for TestMain: it prints the error and exits
// with status 1 when there is one.
func Main() {
	if err := Enter(); err != nil {
		fmt.Fprintln(os.Stderr, "isthmus-lab:", err)
		os.Exit(1)
	}
}

// A refusalSetting is a kernel setting that can forbid user namespaces.
type refusalSetting struct {
	file    string
	refuses string // the value that forbids them
	cure    string
}

var refusalSettings = []refusalSetting{
	{"/proc/sys/kernel/unprivileged_userns_clone", "0", "sysctl -w kernel.unprivileged_userns_clone=1"},
	{"/proc/sys/user/max_user_namespaces", "0", "sysctl -w user.max_user_namespaces=10000"},
	{"/proc/sys/user/max_net_namespaces", "0", "sysctl -w user.max_net_namespaces=10000"},
	{"/proc/sys/user/max_pid_namespaces", "0", "sysctl -w user.max_pid_namespaces=10000"},
	{"/proc/sys/user/max_mnt_namespaces", "0", "sysctl -w user.max_mnt_namespaces=10000"},
	{
		"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1",
		"sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile with the userns permission",
	},
}

// refusal explains why making namespaces failed with cause: it names the settings (read returns a
// file's text) that forbid it, or other possible reasons.
func refusal(cause error, read func(file string) (string, error)) error {
	var why []string
	for _, s := range refusalSettings {
		text, err := read(s.file)
		if err == nil && strings.TrimSpace(text) == s.refuses {
			name := strings.ReplaceAll(strings.TrimPrefix(s.file, "/proc/sys/"), "/", ".")
			why = append(why, fmt.Sprintf("%s is %s (as root: %s)", name, s.refuses, s.cure))
		}
	}
	reason := strings.Join(why, "; ")
	switch {
	case reason != "":
	case errors.Is(cause, syscall.ENOSPC):
		reason = "a limit of user.max_*_namespaces is reached, perhaps in an outer namespace"
	default:
		reason = "no known setting forbids it, so a container's seccomp filter or missing capabilities do; run as root or outside the container"
	}
	return fmt.Errorf("namespaces are refused: %w: %s. Without them no lab, demo or test between sites runs; "+
		"programs of one machine and the tests that need no lab still do", cause, reason)
}

// readText is os.ReadFile with the signature that refusal needs.
func readText(file string) (string, error) {
	text, err := os.ReadFile(file)
	return string(text), err
}
