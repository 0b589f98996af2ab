package traverse

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Whatever a service manager takes away counts as a missing privilege, without which the daemons
// continue to serve.
func TestPrivilege(t *testing.T) {
	for errno, want := range map[syscall.Errno]bool{unix.EPERM: true, unix.EACCES: true, unix.EAFNOSUPPORT: true, unix.ENFILE: false} {
		err := privilege("packet socket", os.NewSyscallError("socket", errno))
		if got := errors.Is(err, ErrPrivilege); got != want || !errors.Is(err, errno) {
			t.Errorf("%v: %v", errno, err)
		}
	}
}
