package control

import (
	"errors"
	"syscall"
)

// isExhaustion reports whether accepting failed for want of descriptors or
// memory, which passes, rather than because the listener is gone.
func isExhaustion(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOBUFS) || errors.Is(err, syscall.ECONNABORTED)
}
