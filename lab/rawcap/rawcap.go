// Package rawcap removes from a process, and from all that it starts, the right to open raw sockets
// (CAP_NET_RAW), and reports whether a process has it. The lab runs as root or in a user namespace,
// where daemons hold every capability; with this package they run there as they would without
// privileges. It does not know what it runs, and its state is that of the processes.
package rawcap

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// netRaw is the number of CAP_NET_RAW (capabilities(7)).
const netRaw = 13

// Held reports whether a process has CAP_NET_RAW in effect. An error means that the process is
// gone, or that this system cannot report it.
func Held(pid int) (bool, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false, fmt.Errorf("capabilities of process %d: %w", pid, err)
	}
	for line := range strings.Lines(string(text)) {
		if digits, ok := strings.CutPrefix(line, "CapEff:"); ok {
			set, err := strconv.ParseUint(strings.TrimSpace(digits), 16, 64)
			if err != nil {
				return false, fmt.Errorf("capabilities of process %d: %w", pid, err)
			}
			return set&(1<<netRaw) != 0, nil
		}
	}
	return false, fmt.Errorf("capabilities of process %d: its status does not tell them", pid)
}
