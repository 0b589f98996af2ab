package probe

import (
	"bufio"
	"fmt"
	"os"
	"strings"
)

// halfOpen reports whether a SYN from a remote port to a port of this host was answered and the
// answer not acknowledged: state 03 of /proc/net/tcp or tcp6 (proc_net(5)), which are readable by
// all.
func halfOpen(ipv6 bool, local, remote uint16) (bool, error) {
	table := "/proc/thread-self/net/tcp" // of this thread's network namespace
	if ipv6 {
		table += "6"
	}
	f, err := os.Open(table)
	if err != nil {
		return false, err
	}
	defer f.Close()
	at, peer := fmt.Sprintf(":%04X", local), fmt.Sprintf(":%04X", remote)
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if w := strings.Fields(lines.Text()); len(w) > 3 && strings.HasSuffix(w[1], at) && strings.HasSuffix(w[2], peer) && w[3] == "03" {
			return true, nil
		}
	}
	return false, lines.Err()
}
