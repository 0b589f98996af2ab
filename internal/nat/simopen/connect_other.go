//go:build !linux

package simopen

import (
	"context"
	"net"
	"net/netip"
)

type connecting struct{}

func share(uintptr) error { return ErrNotLinux }

func startConnect(_ context.Context, _, _ netip.AddrPort) (*connecting, error) {
	return nil, ErrNotLinux
}

func (c *connecting) wait(context.Context) (*net.TCPConn, error) { return nil, ErrNotLinux }
func (c *connecting) abort()                                     {}
func (c *connecting) noAnswer() bool                             { return false }
func explain(err error, _ netip.AddrPort) error                  { return err }
