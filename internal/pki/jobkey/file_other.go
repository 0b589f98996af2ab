//go:build !linux

package jobkey

import (
	"fmt"
	"os"
)

// File returns an open file with the key's text, which has no name any more, and which
// processes inherit as KeyFD. Close it when they have it.
func (k Key) File() (*os.File, error) {
	f, err := os.CreateTemp("", "isthmus-job-key-") // for its owner only
	if err != nil {
		return nil, fmt.Errorf("a file for the job's key: %w", err)
	}
	os.Remove(f.Name())
	if _, err := f.WriteString(k.String()); err != nil {
		f.Close()
		return nil, fmt.Errorf("a file for the job's key: %w", err)
	}
	return f, nil
}
