//go:build !amd64 && !arm64

package debug

import "runtime"

// returnAddresses stores the return addresses of the caller's frames in pcs, the innermost first, and returns how
// many they are, or len(pcs).
func returnAddresses(pcs []uintptr) int { return runtime.Callers(2, pcs) }
