package nodeservice

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// errNoexec is why no program can be started in a folder.
var errNoexec = errors.New("it is on a file system that is mounted noexec, where no program of a job can be started: name a folder of another file system, or mount this one with exec")

// CheckStore returns why jobs cannot run in folders below dir, which need not exist yet.
func CheckStore(dir string) error {
	for {
		if _, err := os.Stat(dir); err == nil || dir == filepath.Dir(dir) {
			break
		}
		dir = filepath.Dir(dir)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err == nil && fs.Flags&unix.ST_NOEXEC != 0 {
		return errNoexec
	}
	return nil // what else is wrong with it is said when it is made
}
