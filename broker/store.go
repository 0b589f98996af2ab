package broker

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
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
func (c Config) storeFile() string {
	file := enrol.InState(string(c.Store), "broker.db")
	if file == "" && c.Enrol.State != "" {
		file = filepath.Join(filepath.Dir(string(c.Enrol.State)), "broker.db")
	}
	return file
}

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
	text, err := os.ReadFile(string(t.CA))
	if err != nil {
		return nil, err
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
	if !cfg.RootCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s: no certificate in it", t.CA)
	}
	if t.Cert != "" {
		own, err := tls.LoadX509KeyPair(string(t.Cert), string(t.Key))
		if err != nil {
			return nil, err
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

// storeKeeper maintains a broker's store, besides what calls read and write. All methods do nothing
// without a store.
type storeKeeper struct {
	store.Store
	name      string // of the broker
	log       *slog.Logger
	creds     *control.Credentials
	enrolment *enrol.Server // nil: none; set before serve
	old       string        // file of an older version's revocation list; "": none
	kept      uint64        // number of a revocation list that is known to be in the store
	probed    time.Time
	pruned    time.Time
	failed    bool // state when it was last logged
}

// newStoreKeeper returns the keeper of the settings' store, which is not open yet.
func newStoreKeeper(cfg Config, creds *control.Credentials, log *slog.Logger) (*storeKeeper, error) {
	s, err := newStore(cfg)
	if err != nil {
		return nil, err
	}
	k := &storeKeeper{Store: s, name: creds.Identity().Name, log: log, creds: creds}
	revokedFile := enrol.InState(string(cfg.TLS.Revoked), "revoked.pem")
	if _, own := s.(*store.Bolt); own {
		k.old = revokedFile
	} else if revokedFile != "" {
		// Also with an etcd: revocations must be known while it is unreachable.
		if err := creds.Revocations().Keep(revokedFile); err != nil {
			return nil, err
		}
	}
	return k, nil
}

// enabled reports whether there is a store.
func (k *storeKeeper) enabled() bool { return k.Store != nil }

// open opens the store and loads the revocations from it and from the file of an older version. A
// predecessor may hold the file for a moment longer.
func (k *storeKeeper) open(ctx context.Context, succeeds bool) error {
	if !k.enabled() {
		return nil
	}
	if file, own := k.Store.(*store.Bolt); own {
		err := file.Open()
		for end := time.Now().Add(takeOverFor); succeeds && errors.Is(err, store.ErrLocked) && time.Now().Before(end) && ctx.Err() == nil; {
			err = file.Open() // waits for the file's lock
		}
		if err != nil {
			return err
		}
	}
	if s := k.Status(); s.Error != "" {
		k.log.Error("the store cannot be written; what needs it is refused", "store", s.Where, "error", s.Error)
		k.failed = true
	}
	if err := k.loadRevocations(ctx); err != nil {
		return err
	}
	k.creds.Revocations().KeepWith(k)
	return nil
}

// loadRevocations loads the list in the store and the one in an older version's file. A list that
// cannot be parsed is an error, because its content is not known.
func (k *storeKeeper) loadRevocations(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, storeCall)
	defer cancel()
	r, err := k.Get(ctx, keyRevocations)
	if errors.Is(err, store.ErrUnavailable) {
		return nil // an etcd is unreachable; for a file, Open has already reported the same
	}
	if err == nil && r.Version != 0 {
		_, err = k.creds.Revocations().Take(r.Value)
	}
	if err != nil {
		return fmt.Errorf("the store's revocation list: %w", err)
	}
	if k.old == "" {
		return nil
	}
	text, err := os.ReadFile(k.old)
	if errors.Is(err, fs.ErrNotExist) {
		k.old = ""
		return nil
	}
	if err == nil {
		var der []byte
		if _, der, err = control.ParseRevocations(text, k.creds.Roots()); err == nil {
			_, err = k.creds.Revocations().Take(der)
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w; put a valid list there (isthmus ca revoke writes crl.pem), or remove the file", k.old, err)
	}
	return nil
}

// KeepRevocations implements control.Keeper.
func (k *storeKeeper) KeepRevocations(number uint64, der []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), storeCall)
	defer cancel()
	for {
		r, err := k.Get(ctx, keyRevocations)
		if err != nil {
			return err
		}
		if r.Version != 0 {
			list, err := revoked.Parse(r.Value, k.creds.Roots())
			if err != nil {
				return fmt.Errorf("the store's revocation list: %w", err)
			}
			if list.Number >= number {
				return nil
			}
		}
		err = k.Commit(ctx, store.Tx{If: []store.Record{r}, Put: []store.Record{{Key: keyRevocations, Value: der}}})
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
}

// Where implements control.Keeper.
func (k *storeKeeper) Where() string { return k.Status().Where }

// serve maintains the store, and applies what other brokers write to it, until ctx ends.
func (k *storeKeeper) serve(ctx context.Context) {
	if !k.enabled() {
		return
	}
	tick := time.NewTicker(keepEvery)
	defer tick.Stop()
	for {
		k.keep(ctx, time.Now())
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// follow applies revocation lists that other brokers write to the store, until ctx ends.
func (k *storeKeeper) follow(ctx context.Context) {
	if !k.enabled() {
		return
	}
	k.Watch(ctx, keyRevocations, func(changes []store.Change, _ bool) {
		for _, c := range changes {
			if c.Deleted || c.Key != keyRevocations {
				continue
			}
			if newer, err := k.creds.Revocations().Take(c.Value); err != nil {
				k.log.Error("the store's revocation list", "error", err)
			} else if newer {
				_, number := k.creds.Revocations().DER()
				k.log.Info("revocation list taken from the store", "number", number)
			}
		}
	})
}

// keep does the periodic work that is due.
func (k *storeKeeper) keep(ctx context.Context, now time.Time) {
	if k.failed || now.Sub(k.probed) >= probeEvery {
		k.probed = now
		call, cancel := context.WithTimeout(ctx, storeCall)
		k.Commit(call, store.Tx{Put: []store.Record{{Key: keyProbe + k.name}}}) // its error is in Status
		cancel()
	}
	s := k.Status()
	switch {
	case s.Error != "" && !k.failed:
		k.log.Error("the store cannot be written; what needs it is refused", "store", s.Where, "error", s.Error)
	case s.Error == "" && k.failed:
		k.log.Info("the store can be written again", "store", s.Where)
	}
	if k.failed = s.Error != ""; k.failed {
		return
	}
	if err := k.takeOver(ctx); err != nil {
		k.log.Error("files of an older version are not in the store yet", "error", err)
	}
	if now.Sub(k.pruned) >= pruneEvery && k.enrolment != nil {
		if err := k.enrolment.Prune(ctx); err != nil {
			k.log.Warn("used tokens that have expired are still in the store", "error", err)
			return
		}
		k.pruned = now
	}
}

// takeOver writes to the store what it lacks: the effective revocation list, if it could not be
// stored on arrival, and files of an older version.
func (k *storeKeeper) takeOver(ctx context.Context) error {
	if der, number := k.creds.Revocations().DER(); number > k.kept {
		if err := k.KeepRevocations(number, der); err != nil {
			return err
		}
		k.kept = number
	}
	if k.old != "" {
		if err := os.Rename(k.old, k.old+".migrated"); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w: all of it is in the store: remove it, or make its folder writable", err)
		}
		k.old = ""
	}
	if k.enrolment != nil {
		ctx, cancel := context.WithTimeout(ctx, storeCall)
		defer cancel()
		return k.enrolment.Migrate(ctx)
	}
	return nil
}

// status returns the store's status, nil without one.
func (k *storeKeeper) status() *store.Status {
	if !k.enabled() {
		return nil
	}
	s := k.Status()
	return &s
}

// close closes the store.
func (k *storeKeeper) close() {
	if k.enabled() {
		k.Store.Close()
	}
}
