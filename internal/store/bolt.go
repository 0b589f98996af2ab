package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// Bolt is a Store in one file, which one process at a time can have open. It opens even when the
// disk is full or cannot be written: then it reads the existing content, and refuses writes until
// they are possible again.
type Bolt struct {
	*Health
	watchers

	mu     sync.RWMutex // guards the fields below; held for reading while db is in use
	db     *bbolt.DB    // nil: there is no file, and it could not be created
	broken error        // why there is no db although there is a file
	tried  time.Time    // when opening the file for writing last failed
	fault  error        // the reason
	closed bool
	opened chan struct{} // closed by Open
}

var bucket = []byte("records")

// lockTimeout is how long OpenBolt waits for another process that has the file open: one that is
// ending closes it by then.
const lockTimeout = 2 * time.Second

// reopenAfter is how often a store that cannot be written tries to open its file for writing.
const reopenAfter = time.Second

// NewBolt returns the store in a file, which another process may still have open. All its calls
// fail, and Watch waits, until Open. Close it.
func NewBolt(file string) *Bolt {
	return &Bolt{Health: NewHealth("bolt", file), broken: fmt.Errorf("%w %s is not open yet", ErrUnavailable, file), opened: make(chan struct{})}
}

// OpenBolt is NewBolt with Open.
func OpenBolt(file string) (*Bolt, error) {
	b := NewBolt(file)
	return b, b.Open()
}

// Open opens the file, and creates it if it does not exist. It fails with ErrLocked when another
// process has it open, and when the file is not a store: its content is then unknown. After an
// error it can be called again.
func (b *Bolt) Open() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.open(); errors.Is(err, ErrUnavailable) {
		b.Note(err)
		if err := b.openToRead(); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	close(b.opened)
	return nil
}

// openToRead opens the file, if there is one, although it cannot be written.
func (b *Bolt) openToRead() error {
	_, err := os.Stat(b.where)
	switch {
	case errors.Is(err, fs.ErrNotExist): // there is nothing to read
		b.broken = nil
		return nil
	case err != nil:
		return fmt.Errorf("store: %w", err)
	}
	err = guarded(func() (err error) {
		b.db, err = bbolt.Open(b.where, 0o600, &bbolt.Options{ReadOnly: true, Timeout: lockTimeout})
		return err
	})
	if err != nil {
		b.db, b.broken = nil, b.wrapError(err)
		return b.broken
	}
	b.broken = nil
	return nil
}

// open opens the file for writing. The caller must hold b.mu, unless b is not in use yet.
func (b *Bolt) open() error {
	switch info, err := os.Stat(b.where); {
	case errors.Is(err, fs.ErrNotExist):
		if err := b.create(); err != nil {
			return b.wrapError(err)
		}
	case err == nil && info.Mode().IsRegular() && info.Size() == 0: // bbolt would begin anew
		return b.wrapError(fmt.Errorf("%w: it is empty", errDamaged))
	}
	db, err := openBolt(b.where)
	if err != nil {
		return b.wrapError(err)
	}
	b.db, b.broken = db, nil
	return nil
}

func openBolt(file string) (db *bbolt.DB, err error) {
	err = guarded(func() (err error) {
		db, err = bbolt.Open(file, 0o600, &bbolt.Options{Timeout: lockTimeout, FreelistType: bbolt.FreelistMapType})
		return err
	})
	return db, err
}

// errDamaged is the error of a file whose pages do not fit together, as on a damaged disk.
var errDamaged = errors.New("the file is damaged")

// guarded calls f, and returns errDamaged if it fails for that, or panics: so bbolt says of a file that it cannot be read,
// and so does the memory in which it has the file that this ends too early.
func guarded(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w (%.200v)", errDamaged, p)
		}
	}()
	if err = f(); err != nil && strings.Contains(err.Error(), "file size too small") { // there is no error type for it
		err = fmt.Errorf("%w (%w)", errDamaged, err)
	}
	return err
}

// create makes an empty store under another name and links it to its own: a partial file, as on a
// full disk, could not be opened.
func (b *Bolt) create() error {
	f, err := os.CreateTemp(filepath.Dir(b.where), "."+filepath.Base(b.where)+"-")
	if err != nil {
		return err
	}
	f.Close()
	defer os.Remove(f.Name())
	db, err := openBolt(f.Name())
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bbolt.Tx) error { _, err := tx.CreateBucketIfNotExists(bucket); return err })
	if err = errors.Join(err, db.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), b.where); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	dir, err := os.Open(filepath.Dir(b.where))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// wrapError names the store in an error of its file, and distinguishes transient errors from
// others.
func (b *Bolt) wrapError(err error) error {
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return fmt.Errorf("store: %s: %w; each broker on a host needs its own file (setting store)", b.where, ErrLocked)
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrVersionMismatch), errors.Is(err, bolterrors.ErrChecksum), errors.Is(err, errDamaged):
		return fmt.Errorf("store: %s is no store (%w); is it the right file? What was used or revoked is not known without it: put a copy of it back", b.where, err)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("store: %w; make the folder", err)
	}
	return b.unwritable(err)
}

func (b *Bolt) unwritable(err error) error {
	return fmt.Errorf("%w cannot be written: %w; free space in %s, or make it writable", ErrUnavailable, err, filepath.Dir(b.where))
}

// view calls f with the records; with nil if there is no file.
func (b *Bolt) view(f func(*bbolt.Bucket) error) error {
	b.mu.RLock()
	defer b.mu.RUnlock()
	switch {
	case b.closed:
		return fmt.Errorf("%w is closed", ErrUnavailable)
	case b.broken != nil:
		return b.broken
	case b.db == nil:
		return nil
	}
	err := guarded(func() error {
		return b.db.View(func(tx *bbolt.Tx) error {
			if records := tx.Bucket(bucket); records != nil {
				return f(records)
			}
			return nil
		})
	})
	if errors.Is(err, errDamaged) {
		return b.wrapError(err)
	}
	return err
}

// Get implements Store.
func (b *Bolt) Get(_ context.Context, key string) (r Record, err error) {
	r.Key = key
	err = b.view(func(records *bbolt.Bucket) (err error) {
		if text := records.Get([]byte(key)); text != nil {
			r, err = unpackBolt(key, text)
		}
		return err
	})
	return r, err
}

// List implements Store.
func (b *Bolt) List(_ context.Context, prefix, after string, max int) (all []Record, err error) {
	err = b.view(func(records *bbolt.Bucket) error {
		c := records.Cursor()
		for k, v := c.Seek([]byte(FirstKey(prefix, after))); k != nil && len(all) < max && strings.HasPrefix(string(k), prefix); k, v = c.Next() {
			r, err := unpackBolt(string(k), v)
			if err != nil {
				return err
			}
			all = append(all, r)
		}
		return nil
	})
	return all, err
}

// Commit implements Store.
func (b *Bolt) Commit(ctx context.Context, tx Tx) error {
	if err := tx.Check(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if err := b.writable(); err != nil {
		return b.Note(err)
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.closed {
		return fmt.Errorf("%w is closed", ErrUnavailable)
	}
	// Watchers see changes in the order of commits.
	b.watchers.mu.Lock()
	defer b.watchers.mu.Unlock()
	var changes []Change
	err := guarded(func() error {
		return b.db.Update(func(t *bbolt.Tx) (err error) {
			changes, err = apply(t, tx)
			return err
		})
	})
	switch {
	case errors.Is(err, errDamaged):
		err = b.wrapError(err)
	case err != nil && !errors.Is(err, ErrConflict):
		err = b.unwritable(err)
	}
	if err == nil {
		b.notify(changes)
	}
	return b.Note(err)
}

// writable opens the file for writing if it is not yet.
func (b *Bolt) writable() error {
	b.mu.RLock()
	broken := b.broken
	fine := b.closed || b.db != nil && !b.db.IsReadOnly()
	b.mu.RUnlock()
	if fine || !b.isOpen() {
		return broken
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.db != nil && !b.db.IsReadOnly() {
		return nil
	}
	if b.fault == nil || time.Since(b.tried) >= reopenAfter {
		b.tried, b.fault = time.Now(), b.reopen()
	}
	return b.fault
}

// reopen reopens the file for writing. The caller must hold b.mu.
func (b *Bolt) reopen() error {
	if b.db == nil {
		return b.open()
	}
	// While it is open for reading, mu is held: concurrent calls wait.
	if err := probe(b.where); err != nil {
		return b.unwritable(err)
	}
	b.db.Close()
	b.db = nil
	if err := b.open(); err != nil {
		return errors.Join(err, b.openToRead())
	}
	return nil
}

func (b *Bolt) isOpen() bool {
	select {
	case <-b.opened:
		return true
	default:
		return false
	}
}

// probe returns why a file cannot be opened for writing.
func probe(file string) error {
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

// apply checks the conditions and writes.
func apply(t *bbolt.Tx, tx Tx) (changes []Change, err error) {
	records, err := t.CreateBucketIfNotExists(bucket)
	if err != nil {
		return nil, err
	}
	for _, want := range tx.If {
		var is int64
		if text := records.Get([]byte(want.Key)); text != nil {
			r, err := unpackBolt(want.Key, text)
			if err != nil {
				return nil, err
			}
			is = r.Version
		}
		if is != want.Version {
			return nil, ErrConflict
		}
	}
	for _, r := range tx.Put {
		version, err := records.NextSequence()
		if err != nil {
			return nil, err
		}
		r.Version = int64(version)
		if err := records.Put([]byte(r.Key), packBolt(r)); err != nil {
			return nil, err
		}
		changes = append(changes, Change{Record: r})
	}
	for _, key := range tx.Delete {
		if err := records.Delete([]byte(key)); err != nil {
			return nil, err
		}
		changes = append(changes, Change{Record: Record{Key: key}, Deleted: true})
	}
	return changes, nil
}

func packBolt(r Record) []byte {
	return append(binary.BigEndian.AppendUint64(nil, uint64(r.Version)), Pack(r)...)
}

func unpackBolt(key string, b []byte) (Record, error) {
	if len(b) < 8 {
		return Record{}, fmt.Errorf("store: record %q is cut off", key)
	}
	r, err := Unpack(key, b[8:])
	r.Version = int64(binary.BigEndian.Uint64(b))
	return r, err
}

// Watch implements Store. All writers are in this process.
func (b *Bolt) Watch(ctx context.Context, prefix string, f func([]Change, bool)) {
	select {
	case <-b.opened:
	case <-ctx.Done():
		return
	}
	b.watch(ctx, prefix, f, b)
}

// Close implements Store.
func (b *Bolt) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.db == nil {
		b.closed = true
		return nil
	}
	b.closed = true
	return b.db.Close()
}

// watchers receive the changes of a store that only this process writes.
type watchers struct {
	mu  sync.Mutex // held from a commit until its changes are queued
	all map[*watcher]struct{}
}

// maxQueued bounds the changes queued for a watcher. A watcher that falls further behind reads
// everything again.
const maxQueued = 4096

type watcher struct {
	prefix  string
	wake    chan struct{}
	changes []Change
	missed  bool // must read everything again
}

// notify queues changes. The caller must hold w.mu.
func (w *watchers) notify(changes []Change) {
	for one := range w.all {
		for _, c := range changes {
			if strings.HasPrefix(c.Key, one.prefix) {
				one.changes = append(one.changes, c)
			}
		}
		if len(one.changes) > maxQueued {
			one.changes, one.missed = nil, true
		}
		select {
		case one.wake <- struct{}{}:
		default:
		}
	}
}

func (w *watchers) watch(ctx context.Context, prefix string, f func([]Change, bool), s Store) {
	one := &watcher{prefix: prefix, wake: make(chan struct{}, 1), missed: true}
	one.wake <- struct{}{}
	w.mu.Lock()
	if w.all == nil {
		w.all = make(map[*watcher]struct{})
	}
	w.all[one] = struct{}{}
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.all, one)
	}()
	for {
		select {
		case <-one.wake:
		case <-ctx.Done():
			return
		}
		w.mu.Lock()
		changes, missed := one.changes, one.missed
		one.changes, one.missed = nil, false
		var err error
		if missed {
			changes, err = listAll(ctx, s, prefix) // no commit comes in between
		}
		w.mu.Unlock()
		switch {
		case err != nil: // the store is closed, or its file broken: there are no further changes
			return
		case missed || len(changes) > 0:
			f(changes, missed)
		}
	}
}

// listAll returns all records with the prefix.
func listAll(ctx context.Context, s Store, prefix string) (changes []Change, err error) {
	err = All(ctx, s, prefix, func(records []Record) error {
		for _, r := range records {
			changes = append(changes, Change{Record: r})
		}
		return nil
	})
	return changes, err
}

// FirstKey returns the smallest key that a List after after may return.
func FirstKey(prefix, after string) string {
	if after < prefix {
		return prefix
	}
	return after + "\x00"
}
