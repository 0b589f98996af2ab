//go:build unix

package pace

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// lockTime bounds the wait for the lock, lockPause is between two tries. Who
// holds it writes a small file and is done.
const (
	lockTime  = 2 * time.Second
	lockPause = 10 * time.Millisecond
)

// lockFile waits until no other process holds f's lock, which ends with f.
func lockFile(f *os.File) error {
	for end := time.Now().Add(lockTime); ; time.Sleep(lockPause) {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) || time.Now().After(end) {
			return err
		}
	}
}
