package jobkey

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// File returns an open memory file with the key's text, which is sealed against changes, and which
// processes inherit as KeyFD. The caller closes it once they have it.
func (k Key) File() (*os.File, error) {
	fd, err := unix.MemfdCreate("isthmus-job-key", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("a file for the job's key: %w", err)
	}
	f := os.NewFile(uintptr(fd), "job key")
	_, err = f.WriteString(k.String())
	if err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("a file for the job's key: %w", err)
	}
	return f, nil
}
