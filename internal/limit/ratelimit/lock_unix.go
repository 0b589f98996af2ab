//go:build unix

package ratelimit

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// lockTime bounds the wait for the lock, lockPause is the interval of tries. The holder only writes
// a small file.
const (
	lockTime  = 2 * time.Second
	lockPause = 10 * time.Millisecond
)

// lockFile waits until no other process holds f's lock; closing f releases it.
func lockFile(f *os.File) error {
	for end := time.Now().Add(lockTime); ; time.Sleep(lockPause) {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) || time.Now().After(end) {
			return err
		}
	}
}
