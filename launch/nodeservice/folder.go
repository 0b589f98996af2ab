package nodeservice

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// lockFolder locks a folder for this process until the returned file is closed.
func lockFolder(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("node_service.store: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("node_service.store: %s is in use by another helper; each helper needs its own folder", dir)
		}
		return nil, fmt.Errorf("node_service.store: locking %s: %w", dir, err)
	}
	return f, nil
}

// ownerOf returns the account to which a folder belongs; 0 if that is not known.
func ownerOf(dir string) uint32 {
	var stat unix.Stat_t
	if unix.Stat(dir, &stat) != nil {
		return 0
	}
	return stat.Uid
}

// makeFolder creates a folder with exactly this mode, whatever the process's umask.
func makeFolder(dir string, mode os.FileMode) error {
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return err
	}
	return os.Chmod(dir, mode)
}
