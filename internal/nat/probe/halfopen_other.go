//go:build !linux

package probe

import "errors"

func halfOpen(ipv6 bool, local, remote uint16) (bool, error) {
	return false, errors.New("whether a SYN was answered is detected on Linux only")
}
