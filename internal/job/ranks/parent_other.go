//go:build !linux

package ranks

import "syscall"

// dieWithParent does nothing: only Linux ends processes with their parent.
func dieWithParent() *syscall.SysProcAttr { return nil }

func holdThread() (release func()) { return func() {} }
