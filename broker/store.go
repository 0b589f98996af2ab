package broker

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/daemon"
	"github.com/isthmus-grid/isthmus/internal/pki/enrol"
	"github.com/isthmus-grid/isthmus/internal/pki/revoked"
	"github.com/isthmus-grid/isthmus/internal/store"
)

// The keys of a broker's store, besides the used tokens (package enrol):
//
//	revocations   the newest revocation list, DER
//	name/NAME     the publisher and text of a name (shared.go)
//	lease/SITE    until when the site's names are kept
//	probe/BROKER  empty: tests that the store can be written
const (
	keyRevocations = "revocations"
	keyProbe       = "probe/"
)

// StoreTLS names the files by which a broker and an etcd authenticate each other.
type StoreTLS struct {
	CA   daemon.Path `yaml:"ca" path:"file" example:"/etc/isthmus/etcd-ca.pem" help:"CA certificates to verify the etcd's members with. Without it, only an etcd at addresses of this host is used, in clear text."`
	Cert daemon.Path `yaml:"cert" path:"file" example:"/etc/isthmus/etcd.pem" help:"Client certificate for the etcd."`
	Key  daemon.Path `yaml:"key" path:"file" example:"/etc/isthmus/etcd.key" help:"Private key of the certificate."`
}

// sharedStore reports whether the settings name an etcd.
func (c Config) sharedStore() bool { return strings.Contains(string(c.Store), "://") }

// checkStore validates the keys of the store against each other.
func (c Config) checkStore() error {
	if !c.sharedStore() {
		if c.StoreTLS != (StoreTLS{}) {
			return daemon.Wrong("store_tls", "it applies to an etcd, but store is not an etcd; write store: etcd://host:2379/prefix, or omit it")
		}
		return nil
	}
	at, err := store.ParseEtcd(string(c.Store))
	switch {
	case err != nil:
		return daemon.Wrong("store", "%v", err)
	case c.StoreTLS.CA == "" && !at.Local():
		return daemon.Wrong("store_tls.ca", "an etcd at another host needs TLS: an attacker on the path could make used tokens valid again")
	case (c.StoreTLS.Cert == "") != (c.StoreTLS.Key == ""):
		return daemon.Wrong("store_tls.cert", "a certificate and its key go together")
	}
	return nil
}

// storeFile returns the path of a broker's own store, or "".
func (c Config) storeFile() string { return enrol.InState(string(c.Store), "broker.db") }

// newStore returns the store of the settings, nil if there is none. A file store is not open yet.
func newStore(cfg Config) (store.Store, error) {
	if !cfg.sharedStore() {
		if file := cfg.storeFile(); file != "" {
			return store.NewBolt(file), nil
		}
		return nil, nil
	}
	at, err := store.ParseEtcd(string(cfg.Store))
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	conf, err := cfg.StoreTLS.config()
	if err != nil {
		return nil, fmt.Errorf("store_tls: %w", err)
	}
	return store.OpenEtcd(at, conf)
}

// config returns the TLS configuration towards an etcd, or nil for none.
func (t StoreTLS) config() (*tls.Config, error) {
	if t.CA == "" {
		return nil, nil
	}
	pool, err := poolOf(t.CA)
	if err != nil {
		return nil, err
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}
	if t.Cert != "" {
		own, err := tls.LoadX509KeyPair(string(t.Cert), string(t.Key))
		if err != nil {
			return nil, fmt.Errorf("%s, %s: %w", t.Cert, t.Key, err)
		}
		cfg.Certificates = []tls.Certificate{own}
	}
	return cfg, nil
}

// Bounds on the use of the store.
const (
	storeCall   = 3 * time.Second  // one read or write, except of tokens
	keepEvery   = 5 * time.Second  // between two checks for pending writes
	probeEvery  = time.Minute      // between two write probes of a store that could be written
	pruneEvery  = 10 * time.Minute // between two deletions of expired entries
	takeOverFor = 10 * time.Second // for a predecessor to release its file
)

// storeManager maintains a broker's store, besides what calls read and write. All methods do nothing
// without a store.
type storeManager struct {
	store.Store
	name      string // of the broker
	log       *slog.Logger
	creds     *control.Credentials
	enrolment *enrol.Server // nil: none; set before serve

	// Used by open, and then only by serve.
	kept   uint64    // number of a revocation list that is known to be in the store
	probed time.Time // when the store was last written to see whether it can be
	pruned time.Time
	failed bool // state when it was last logged
}

// newStoreManager returns the manager of the settings' store, which is not open yet.
func newStoreManager(cfg Config, creds *control.Credentials, log *slog.Logger) (*storeManager, error) {
	s, err := newStore(cfg)
	if err != nil {
		return nil, err
	}
	sm := &storeManager{Store: s, name: creds.Identity().Name, log: log, creds: creds}
	if _, own := s.(*store.Bolt); !own {
		// Also with an etcd: revocations must be known while it is unreachable.
		return sm, enrol.KeepRevoked(creds, string(cfg.TLS.Revoked))
	}
	return sm, nil
}

// enabled reports whether there is a store.
func (sm *storeManager) enabled() bool { return sm.Store != nil }

// open opens the store and loads the revocations from it. A predecessor may hold the file for a moment longer.
func (sm *storeManager) open(ctx context.Context, succeeds bool) error {
	if !sm.enabled() {
		return nil
	}
	if file, own := sm.Store.(*store.Bolt); own {
		err := file.Open()
		for end := time.Now().Add(takeOverFor); succeeds && errors.Is(err, store.ErrLocked) && time.Now().Before(end) && ctx.Err() == nil; {
			err = file.Open() // waits for the file's lock
		}
		if err != nil {
			return err
		}
	}
	if s := sm.Status(); s.Error != "" {
		sm.log.Error("the store cannot be written; what needs it is refused", "store", s.Where, "error", s.Error)
		sm.failed = true
	}
	if err := sm.loadRevocations(ctx); err != nil {
		return err
	}
	sm.creds.Revocations().StoreIn(sm)
	return nil
}

// loadRevocations loads the list in the store. A list that
// cannot be parsed is an error, because its content is not known.
func (sm *storeManager) loadRevocations(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, storeCall)
	defer cancel()
	r, err := sm.Get(ctx, keyRevocations)
	if errors.Is(err, store.ErrUnavailable) {
		return nil // an etcd is unreachable; for a file, Open has already reported the same
	}
	if err == nil && r.Version != 0 {
		_, err = sm.creds.Revocations().Take(r.Value)
	}
	if err != nil {
		return fmt.Errorf("the store's revocation list: %w", err)
	}
	return nil
}

// StoreRevocations implements control.RevocationStore.
func (sm *storeManager) StoreRevocations(number uint64, der []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), storeCall)
	defer cancel()
	for {
		r, err := sm.Get(ctx, keyRevocations)
		if err != nil {
			return err
		}
		if r.Version != 0 {
			list, err := revoked.Parse(r.Value, sm.creds.Roots())
			if err != nil {
				return fmt.Errorf("the store's revocation list: %w", err)
			}
			if list.Number >= number {
				return nil
			}
		}
		err = sm.Commit(ctx, store.Tx{If: []store.Record{r}, Put: []store.Record{{Key: keyRevocations, Value: der}}})
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
}

// Where implements control.RevocationStore.
func (sm *storeManager) Where() string { return sm.Status().Where }

// serve maintains the store, and applies what other brokers write to it, until ctx ends.
func (sm *storeManager) serve(ctx context.Context) {
	if !sm.enabled() {
		return
	}
	tick := time.NewTicker(keepEvery)
	defer tick.Stop()
	for {
		sm.keep(ctx, time.Now())
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// follow applies revocation lists that other brokers write to the store, until ctx ends.
func (sm *storeManager) follow(ctx context.Context) {
	if !sm.enabled() {
		return
	}
	sm.Watch(ctx, keyRevocations, func(changes []store.Change, _ bool) {
		for _, c := range changes {
			if c.Deleted || c.Key != keyRevocations {
				continue
			}
			if newer, err := sm.creds.Revocations().Take(c.Value); err != nil {
				sm.log.Error("the store's revocation list", "error", err)
			} else if newer {
				_, number := sm.creds.Revocations().DER()
				sm.log.Info("revocation list taken from the store", "number", number)
			}
		}
	})
}

// keep does the periodic work that is due.
func (sm *storeManager) keep(ctx context.Context, now time.Time) {
	if sm.failed || now.Sub(sm.probed) >= probeEvery {
		sm.probed = now
		call, cancel := context.WithTimeout(ctx, storeCall)
		sm.Commit(call, store.Tx{Put: []store.Record{{Key: keyProbe + sm.name}}}) // its error is in Status
		cancel()
	}
	s := sm.Status()
	switch {
	case s.Error != "" && !sm.failed:
		sm.log.Error("the store cannot be written; what needs it is refused", "store", s.Where, "error", s.Error)
	case s.Error == "" && sm.failed:
		sm.log.Info("the store can be written again", "store", s.Where)
	}
	if sm.failed = s.Error != ""; sm.failed {
		return
	}
	if der, number := sm.creds.Revocations().DER(); number > sm.kept { // it could not be stored on arrival
		if err := sm.StoreRevocations(number, der); err != nil {
			sm.log.Error("the revocation list is not in the store yet", "error", err)
		} else {
			sm.kept = number
		}
	}
	if now.Sub(sm.pruned) >= pruneEvery && sm.enrolment != nil {
		if err := sm.enrolment.Prune(ctx); err != nil {
			sm.log.Warn("used tokens that have expired are still in the store", "error", err)
			return
		}
		sm.pruned = now
	}
}

// status returns the store's status, nil without one.
func (sm *storeManager) status() *store.Status {
	if !sm.enabled() {
		return nil
	}
	s := sm.Status()
	return &s
}

// close closes the store.
func (sm *storeManager) close() {
	if sm.enabled() {
		sm.Store.Close()
	}
}
