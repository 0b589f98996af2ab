package rawcap

import (
	"fmt"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Exec replaces this process by the program argv[0], a path, without CAP_NET_RAW: neither it nor
// what it starts can regain it. It returns only an error. The caller needs CAP_SETPCAP.
func Exec(argv, env []string) error {
	// Capabilities belong to the thread, and the program gets those of the thread that starts it;
	// the others end.
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_CAPBSET_DROP, netRaw, 0, 0, 0); err != nil {
		return fmt.Errorf("dropping CAP_NET_RAW from what programs can get: %w", err)
	}
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&head, &sets[0]); err != nil {
		return fmt.Errorf("reading own capabilities: %w", err)
	}
	for _, set := range []*uint32{&sets[0].Effective, &sets[0].Permitted, &sets[0].Inheritable} {
		*set &^= 1 << netRaw
	}
	if err := unix.Capset(&head, &sets[0]); err != nil {
		return fmt.Errorf("giving up CAP_NET_RAW: %w", err)
	}
	return fmt.Errorf("starting %s: %w", argv[0], syscall.Exec(argv[0], argv, env))
}
