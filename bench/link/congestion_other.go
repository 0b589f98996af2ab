//go:build !linux

package link

import (
	"net"

	"github.com/isthmus-grid/isthmus/lab"
)

func setCongestion(*net.TCPConn, string) (string, error) { return "", lab.ErrNotLinux }
