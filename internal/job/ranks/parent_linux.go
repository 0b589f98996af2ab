package ranks

import (
	"runtime"
	"syscall"
)

// dieWithParent makes the kernel kill a rank when this process dies.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// holdThread keeps the calling goroutine on its thread until release is called: to the kernel, that
// thread is the parent of what it starts.
func holdThread() (release func()) {
	runtime.LockOSThread()
	return runtime.UnlockOSThread
}
