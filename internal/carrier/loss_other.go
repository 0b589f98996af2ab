//go:build !linux

package carrier

import (
	"net"
	"time"
)

// A LossWatch does nothing: TCP_INFO and the choice of congestion control are Linux's.
type LossWatch struct{}

// WatchLoss returns nil.
func WatchLoss(*net.TCPConn, *LossyPaths) *LossWatch { return nil }

// Look does nothing.
func (*LossWatch) Look(time.Time) {}

// Lossy reports false.
func (*LossWatch) Lossy() bool { return false }

// TolerateLoss does nothing.
func TolerateLoss(*net.TCPConn) {}
