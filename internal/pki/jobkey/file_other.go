//go:build !linux

package jobkey

import (
	"fmt"
	"os"
)

// File returns an open, already unlinked file with the key's text, which processes inherit as
// KeyFD. The caller closes it once they have it.
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
