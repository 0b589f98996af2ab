// Package store keeps a broker's durable state: used tokens, the revocation list, published names.
// A [Store] is a map from keys to records with conditional writes: a file of this broker's own
// ([OpenBolt]), or an etcd that several brokers share ([OpenEtcd]), whose client package store/etcd
// brings. It knows nothing of what the records mean.
//
// A write that returned nil is on disk (of a majority of etcd's members). One that returned an
// error may or may not be; its conditions make it safe to check and to retry.
package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// A Store keeps records. Safe for concurrent use. Every call is bounded in time, even without a
// deadline of ctx, except for a call to a Bolt whose disk neither answers nor fails: that blocks in
// the kernel for as long as the disk does.
type Store interface {
	// Get returns the record with the key, with Version 0 if there is none.
	Get(ctx context.Context, key string) (Record, error)

	// List returns records whose keys begin with prefix and sort after after, in the order of their
	// keys, at most max of them. Use All for the complete list.
	List(ctx context.Context, prefix, after string, max int) ([]Record, error)

	// Commit does all of tx or nothing. ErrConflict means that a condition does not hold and
	// nothing was written, ErrUnavailable that the store cannot be written at present; in the
	// latter case everything may still have been written if the store is reached over a network, or
	// if the disk failed at the end.
	Commit(ctx context.Context, tx Tx) error

	// Watch calls f with all records whose keys begin with prefix, whole set, and then with the
	// changes, until ctx ends. It calls f with all records again whenever it may have missed a
	// change. Calls of f do not overlap.
	Watch(ctx context.Context, prefix string, f func(changes []Change, whole bool))

	// Status returns the state of the store.
	Status() Status

	// Close closes the store. Calls in progress fail.
	Close() error
}

// Record is a key and its value.
type Record struct {
	Key     string
	Value   []byte
	Expires time.Time // when it need not be kept any longer, in milliseconds; zero: never

	// Version changes with every write of the key, and is 0 where there is no record. Commit
	// ignores it in Put.
	Version int64
}

// Change is a record that was put, or the key of one that was deleted.
type Change struct {
	Record
	Deleted bool
}

// Tx is the input of one Commit.
type Tx struct {
	If     []Record // the keys and versions that must be current; the other fields are ignored
	Put    []Record
	Delete []string
}

// MaxTx bounds the conditions, and the puts and deletions together, of one Tx: the limit of an etcd
// with default settings.
const MaxTx = 128

// MaxValue bounds a value, in bytes: the limit of an etcd with default settings, less the rest of
// the request.
const MaxValue = 1<<20 + 1<<16

// ErrConflict means that another writer changed a record first.
var ErrConflict = errors.New("the record has changed meanwhile")

// ErrUnavailable means that the store cannot be read or written at present. It is an
// overlay.ErrUnreachable.
var ErrUnavailable = fmt.Errorf("%w: the store", overlay.ErrUnreachable)

// ErrLocked means that another process has the store's file open.
var ErrLocked = errors.New("another process uses it")

// Status is the state of a store, for display.
type Status struct {
	Kind  string    `json:"kind"`            // bolt, etcd or memory
	Where string    `json:"where"`           // a file or an etcd address
	Error string    `json:"error,omitempty"` // why it cannot be read or written; "" if it can
	Since time.Time `json:"since,omitzero"`  // start of that state
}

// Health is the result of a store's last call. A Store that embeds it has Status. Safe for concurrent
// use.
type Health struct {
	kind, where string

	mu    sync.Mutex
	err   error
	since time.Time
}

// NewHealth returns the health of a store that has not failed yet; see Status for kind and where.
func NewHealth(kind, where string) *Health { return &Health{kind: kind, where: where} }

// Where returns the file or the address.
func (h *Health) Where() string { return h.where }

// Note records whether a call failed because of the store, and returns its error.
func (h *Health) Note(err error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case errors.Is(err, ErrUnavailable):
		if h.err == nil {
			h.since = time.Now()
		}
		h.err = err
	case err == nil:
		h.err, h.since = nil, time.Time{}
	}
	return err
}

// Status implements Store.
func (h *Health) Status() Status {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := Status{Kind: h.kind, Where: h.where, Since: h.since}
	if h.err != nil {
		s.Error = h.err.Error()
	}
	return s
}

// PageSize is how many records are read at a time.
const PageSize = 500

// All calls f with every record whose key begins with prefix, in the order of their keys, several
// at a time, until f or the store fails.
func All(ctx context.Context, s Store, prefix string, f func([]Record) error) error {
	for after := ""; ; {
		records, err := s.List(ctx, prefix, after, PageSize)
		if err != nil || len(records) == 0 {
			return err
		}
		if err := f(records); err != nil {
			return err
		}
		after = records[len(records)-1].Key
	}
}

// Prune deletes the expired records with the prefix, unless they were written meanwhile, and
// returns how many are left.
func Prune(ctx context.Context, s Store, prefix string, now time.Time) (left int, err error) {
	err = All(ctx, s, prefix, func(records []Record) error {
		var tx Tx
		flush := func() error {
			if len(tx.Delete) == 0 {
				return nil
			}
			err := s.Commit(ctx, tx)
			if errors.Is(err, ErrConflict) { // the next call checks again
				left, err = left+len(tx.Delete), nil
			}
			tx = Tx{}
			return err
		}
		for _, r := range records {
			if r.Expires.IsZero() || now.Before(r.Expires) {
				left++
				continue
			}
			tx.If, tx.Delete = append(tx.If, r), append(tx.Delete, r.Key)
			if len(tx.Delete) == MaxTx {
				if err := flush(); err != nil {
					return err
				}
			}
		}
		return flush()
	})
	return left, err
}

// Check returns an error for a Tx that no store accepts.
func (tx Tx) Check() error {
	if len(tx.If) > MaxTx || len(tx.Put)+len(tx.Delete) > MaxTx {
		return fmt.Errorf("store: %d conditions and %d writes in one step, at most %d are taken", len(tx.If), len(tx.Put)+len(tx.Delete), MaxTx)
	}
	for _, r := range tx.Put {
		if len(r.Value) > MaxValue {
			return fmt.Errorf("store: %s has %d bytes, at most %d are taken", r.Key, len(r.Value), MaxValue)
		}
	}
	return nil
}

// format is the first byte of the stored value of a key:
//
//	format:u8=1 expires:i64 (Unix milliseconds; 0: never) value
//
// and, in a file, version:i64 before expires. Numbers are big-endian.
const format = 1

// Pack returns the value of a record and when it expires as they are stored, without its version.
func Pack(r Record) []byte {
	ms := int64(0)
	if !r.Expires.IsZero() {
		ms = r.Expires.UnixMilli()
	}
	return append(binary.BigEndian.AppendUint64([]byte{format}, uint64(ms)), r.Value...)
}

// Unpack parses what Pack returned for the record with the key, in a copy.
func Unpack(key string, b []byte) (Record, error) {
	if len(b) < 9 || b[0] != format {
		return Record{}, fmt.Errorf("store: record %q is not of this version's format; was it written by a newer version?", key)
	}
	r := Record{Key: key, Value: append([]byte(nil), b[9:]...)}
	if ms := int64(binary.BigEndian.Uint64(b[1:])); ms != 0 {
		r.Expires = time.UnixMilli(ms)
	}
	return r, nil
}
