//go:build !unix

package ratelimit

import "os"

// lockFile does nothing on systems where daemons do not hand over to successors.
func lockFile(*os.File) error { return nil }
