// Package etcd is the store that several brokers share: an etcd. It registers itself with package
// store, so that only the programs that import it include etcd's client. Its state is the client's
// connections.
package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/isthmus-grid/isthmus/internal/sleep"
	"github.com/isthmus-grid/isthmus/internal/store"
)

func init() { store.RegisterEtcd(open) }

// Etcd is a store.Store in an etcd, which several brokers share.
type Etcd struct {
	*store.Health
	client *clientv3.Client
	prefix string // of all keys, with a trailing slash
}

// Bounds on the use of etcd.
const (
	callTime = 2 * time.Second // one call; another member answers the next
	pause    = time.Second     // between two tries to watch
)

// open is store.OpenEtcd.
func open(at store.Address, cfg *tls.Config) (store.Store, error) {
	scheme := "http"
	if cfg != nil {
		scheme = "https"
	}
	var all []string
	for _, h := range at.Hosts {
		all = append(all, (&url.URL{Scheme: scheme, Host: h}).String())
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: all, TLS: cfg, Logger: zap.NewNop(),
		DialTimeout: callTime, DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second,
		// A member that is back is used again at once: gRPC's own bound is 2 min.
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: pause},
			MinConnectTimeout: callTime,
		})},
	})
	if err != nil {
		return nil, fmt.Errorf("store: %v: %w", at, err)
	}
	return &Etcd{Health: store.NewHealth("etcd", at.String()), client: client, prefix: at.Prefix + "/"}, nil
}

// failed classifies the error of a call; asker is the caller's context: a cancellation by the
// caller is not a failure of the store.
func (e *Etcd) failed(asker context.Context, err error) error {
	switch {
	case err == nil, errors.Is(err, store.ErrConflict):
		return e.Note(err)
	case errors.Is(err, rpctypes.ErrRequestTooLarge):
		return fmt.Errorf("store: %s: %w", e.Where(), err)
	case errors.Is(asker.Err(), context.DeadlineExceeded):
		return fmt.Errorf("%w %s did not answer while the caller waited: %w; is a majority of its members up, and reachable from here?", store.ErrUnavailable, e.Where(), err)
	case asker.Err() != nil:
		return fmt.Errorf("%w %s was not waited for: %w", store.ErrUnavailable, e.Where(), err)
	case errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("no answer in time (%w)", err)
	}
	return e.Note(fmt.Errorf("%w %s cannot be used: %w; is a majority of its members up, and reachable from here?", store.ErrUnavailable, e.Where(), err))
}

// Get implements store.Store.
func (e *Etcd) Get(ctx context.Context, key string) (store.Record, error) {
	call, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	resp, err := e.client.Get(call, e.prefix+key)
	if err = e.failed(ctx, err); err != nil {
		return store.Record{}, err
	}
	if len(resp.Kvs) == 0 {
		return store.Record{Key: key}, nil
	}
	return e.record(resp.Kvs[0])
}

func (e *Etcd) record(kv *mvccpb.KeyValue) (store.Record, error) {
	r, err := store.Unpack(strings.TrimPrefix(string(kv.Key), e.prefix), kv.Value)
	r.Version = kv.ModRevision
	return r, err
}

// List implements store.Store.
func (e *Etcd) List(ctx context.Context, prefix, after string, max int) ([]store.Record, error) {
	all, _, err := e.list(ctx, prefix, after, max, 0)
	return all, err
}

// list returns records as of a revision of etcd, 0 for the current one, and that revision.
func (e *Etcd) list(ctx context.Context, prefix, after string, max int, revision int64) ([]store.Record, int64, error) {
	call, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	resp, err := e.client.Get(call, e.prefix+store.FirstKey(prefix, after), clientv3.WithRange(clientv3.GetPrefixRangeEnd(e.prefix+prefix)),
		clientv3.WithLimit(int64(max)), clientv3.WithRev(revision))
	if err = e.failed(ctx, err); err != nil {
		return nil, 0, err
	}
	all := make([]store.Record, len(resp.Kvs))
	for i, kv := range resp.Kvs {
		if all[i], err = e.record(kv); err != nil {
			return nil, 0, err
		}
	}
	if revision == 0 {
		revision = resp.Header.Revision
	}
	return all, revision, nil
}

// Commit implements store.Store.
func (e *Etcd) Commit(ctx context.Context, tx store.Tx) error {
	if err := tx.Check(); err != nil {
		return err
	}
	var conditions []clientv3.Cmp
	for _, r := range tx.If {
		conditions = append(conditions, clientv3.Compare(clientv3.ModRevision(e.prefix+r.Key), "=", r.Version))
	}
	var ops []clientv3.Op
	for _, r := range tx.Put {
		ops = append(ops, clientv3.OpPut(e.prefix+r.Key, string(store.Pack(r))))
	}
	for _, key := range tx.Delete {
		ops = append(ops, clientv3.OpDelete(e.prefix+key))
	}
	call, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	resp, err := e.client.Txn(call).If(conditions...).Then(ops...).Commit()
	if err == nil && !resp.Succeeded {
		err = store.ErrConflict
	}
	return e.failed(ctx, err)
}

// Watch implements store.Store.
func (e *Etcd) Watch(ctx context.Context, prefix string, f func([]store.Change, bool)) {
	for {
		e.follow(ctx, prefix, f)
		if sleep.For(ctx, pause) != nil {
			return
		}
	}
}

// follow is Watch until it misses a change.
func (e *Etcd) follow(ctx context.Context, prefix string, f func([]store.Change, bool)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var changes []store.Change
	revision := int64(0)
	for after := ""; ; {
		records, at, err := e.list(ctx, prefix, after, store.PageSize, revision)
		if err != nil {
			return
		}
		revision = at
		for _, r := range records {
			changes = append(changes, store.Change{Record: r})
		}
		if len(records) < store.PageSize {
			break
		}
		after = records[store.PageSize-1].Key
	}
	f(changes, true)
	// A member that has lost the others reports that, instead of staying silent.
	news := e.client.Watch(clientv3.WithRequireLeader(ctx), e.prefix+prefix, clientv3.WithPrefix(), clientv3.WithRev(revision+1))
	for resp := range news {
		if resp.Err() != nil {
			return
		}
		changes := make([]store.Change, 0, len(resp.Events))
		for _, ev := range resp.Events {
			if ev.Type == clientv3.EventTypeDelete {
				changes = append(changes, store.Change{Record: store.Record{Key: strings.TrimPrefix(string(ev.Kv.Key), e.prefix)}, Deleted: true})
				continue
			}
			r, err := e.record(ev.Kv)
			if err != nil {
				return
			}
			changes = append(changes, store.Change{Record: r})
		}
		if len(changes) > 0 {
			f(changes, false)
		}
	}
}

// Close implements store.Store.
func (e *Etcd) Close() error { return e.client.Close() }
