package pace

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/isthmus-grid/isthmus/internal/quota"
)

// maxState bounds the file of the month's counts.
const maxState = 64 << 20

// load reads the month's counts; without a file there are none.
func load(path string) (*quota.Ledger, error) {
	ledger := quota.NewLedger()
	if path == "" {
		return ledger, nil
	}
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return ledger, nil
	}
	if err != nil {
		return nil, fmt.Errorf("the month's counts: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxState))
	if err == nil {
		err = json.Unmarshal(text, ledger)
	}
	if err != nil {
		return nil, fmt.Errorf("the month's counts in %s: %w; repair the file, or remove it to count from zero", path, err)
	}
	return ledger, nil
}

// store writes the month's counts, if there is a file for them.
func (k *Keeper) store() {
	if k.state == "" {
		return
	}
	k.mu.Lock()
	text, err := json.Marshal(k.quota.Ledger())
	k.mu.Unlock()
	if err == nil {
		err = replace(k.state, text)
	}
	if err != nil {
		k.log.Error("the month's counts are not stored; a restart would lose them", "file", k.state, "error", err)
	}
}

// replace writes a file such that at any time there is the old or the new one.
func replace(path string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}
