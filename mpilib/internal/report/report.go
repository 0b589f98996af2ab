// Package report describes the links of a process, and writes what it reports at its end. It keeps no state.
package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// Write writes records as JSON, one object per line: to the file rank-N.json if name is a
// directory, and otherwise appended to the file name, in one write, so that all ranks of a machine
// may share it.
func Write[T any](name string, rank int, records []T) error {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	for _, r := range records {
		if err := enc.Encode(r); err != nil {
			return fmt.Errorf("report: %w", err)
		}
	}
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		name = filepath.Join(name, fmt.Sprintf("rank-%d.json", rank))
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o666)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	_, err = f.Write(out.Bytes())
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}
