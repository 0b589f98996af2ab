//go:build !linux

package carrier

import (
	"fmt"
	"runtime"
)

// limitSegments works on Linux only.
func limitSegments(_ uintptr, ipv6 bool, mtu int) error {
	if mtu == 0 {
		return nil
	}
	return fmt.Errorf("segments of at most %d bytes cannot be asked for on %s", segmentOf(mtu, ipv6), runtime.GOOS)
}
