//go:build !linux

package probe

import (
	"errors"
	"net"
	"syscall"
)

func forbidFragments(syscall.RawConn) error {
	return errors.New("this system's way to forbid fragments is not known; measure on Linux")
}

func reportedMTU(*net.UDPConn, int) int { return 0 }
