package ratelimit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/isthmus-grid/isthmus/internal/limit/quota"
)

// maxState bounds the file of the month's counts, in bytes.
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

// store adds the counts since the last call to the month's counts in the file, if there is one.
// Another process may do the same: one that hands its sockets over continues its links beside its
// successor. Each learns what the other has counted.
func (lim *Limiter) store() {
	if lim.state == "" {
		return
	}
	lim.mu.Lock()
	fresh := lim.quota.Fresh()
	lim.mu.Unlock()
	all, err := merge(lim.state, fresh)
	if err != nil {
		lim.log.Error("the month's counts are not stored; a restart would lose them", "file", lim.state, "error", err)
	} else {
		fresh = nil
	}
	lim.mu.Lock()
	defer lim.mu.Unlock()
	now := time.Now()
	lim.quota.Stored(all, fresh, now)
	lim.renew(now)
}

// merge adds counts to those in the file, under a lock against other processes, and returns the new
// content.
func merge(path string, fresh *quota.Ledger) (*quota.Ledger, error) {
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	defer lock.Close() // releases the lock
	if err := lockFile(lock); err != nil {
		return nil, fmt.Errorf("%s: %w", lock.Name(), err)
	}
	all, err := load(path)
	if err != nil {
		return nil, err
	}
	all.Merge(fresh)
	text, err := json.Marshal(all)
	if err == nil {
		err = replace(path, text)
	}
	if err != nil {
		return nil, err
	}
	return all, nil
}

// replace writes a file atomically.
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
