//go:build !linux

package punch

import "net"

func joinDatagrams(*net.UDPConn) {} // each arrives separately

func joinedSize([]byte) int { return 0 }
