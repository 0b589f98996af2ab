package store

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// Etcd is a Store in an etcd, which several brokers share.
type Etcd struct {
	health
	client *clientv3.Client
	prefix string // of all keys, with a trailing slash
}

// Bounds on the use of etcd.
const (
	etcdCall  = 2 * time.Second // one call; another member answers the next
	etcdPause = time.Second     // between two tries to watch
)

// Address is the address of an etcd.
type Address struct {
	Hosts  []string // host:port each
	Prefix string   // of the keys, as in "isthmus"
}

// ParseEtcd parses etcd://host:port,host:port/prefix.
func ParseEtcd(text string) (Address, error) {
	fail := func(why string, args ...any) (Address, error) {
		return Address{}, fmt.Errorf("%q: %s; write etcd://host:2379,host:2379/prefix", text, fmt.Sprintf(why, args...))
	}
	rest, ok := strings.CutPrefix(text, "etcd://")
	if !ok {
		return fail("it is no address of an etcd")
	}
	hosts, prefix, _ := strings.Cut(rest, "/")
	prefix = strings.Trim(prefix, "/")
	a := Address{Prefix: prefix}
	if prefix == "" {
		return fail("a prefix of the keys is missing, which is this grid's alone")
	}
	for _, h := range strings.Split(hosts, ",") {
		if host, port, err := net.SplitHostPort(h); err != nil || host == "" || port == "" {
			return fail("%q is no host:port", h)
		}
		a.Hosts = append(a.Hosts, h)
	}
	return a, nil
}

// Local reports whether all hosts are addresses of this machine.
func (a Address) Local() bool {
	for _, h := range a.Hosts {
		host, _, _ := net.SplitHostPort(h)
		if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
			return false
		}
	}
	return true
}

// String returns the form that ParseEtcd parses.
func (a Address) String() string {
	return "etcd://" + strings.Join(a.Hosts, ",") + "/" + a.Prefix
}

// OpenEtcd returns the store at an address, over TLS if cfg is not nil. It does not wait for a
// connection: calls fail while there is none. Close it.
func OpenEtcd(at Address, cfg *tls.Config) (*Etcd, error) {
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
		DialTimeout: etcdCall, DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second,
		// A member that is back is used again at once: gRPC's own bound is 2 min.
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: etcdPause},
			MinConnectTimeout: etcdCall,
		})},
	})
	if err != nil {
		return nil, fmt.Errorf("store: %v: %w", at, err)
	}
	return &Etcd{health: health{kind: "etcd", where: at.String()}, client: client, prefix: at.Prefix + "/"}, nil
}

// failed classifies the error of a call; asker is the caller's context: a cancellation by the
// caller is not a failure of the store.
func (e *Etcd) failed(asker context.Context, err error) error {
	switch {
	case err == nil, errors.Is(err, ErrConflict):
		return e.note(err)
	case errors.Is(err, rpctypes.ErrRequestTooLarge):
		return fmt.Errorf("store: %s: %w", e.where, err)
	case errors.Is(asker.Err(), context.DeadlineExceeded):
		return fmt.Errorf("%w %s did not answer while the caller waited: %w; is a majority of its members up, and reachable from here?", ErrUnavailable, e.where, err)
	case asker.Err() != nil:
		return fmt.Errorf("%w %s was not waited for: %w", ErrUnavailable, e.where, err)
	case errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("no answer in time (%w)", err)
	}
	return e.note(fmt.Errorf("%w %s cannot be used: %w; is a majority of its members up, and reachable from here?", ErrUnavailable, e.where, err))
}

// Get implements Store.
func (e *Etcd) Get(ctx context.Context, key string) (Record, error) {
	call, cancel := context.WithTimeout(ctx, etcdCall)
	defer cancel()
	resp, err := e.client.Get(call, e.prefix+key)
	if err = e.failed(ctx, err); err != nil {
		return Record{}, err
	}
	if len(resp.Kvs) == 0 {
		return Record{Key: key}, nil
	}
	return e.record(resp.Kvs[0])
}

func (e *Etcd) record(kv *mvccpb.KeyValue) (Record, error) {
	r, err := unpack(strings.TrimPrefix(string(kv.Key), e.prefix), kv.Value)
	r.Version = kv.ModRevision
	return r, err
}

// List implements Store.
func (e *Etcd) List(ctx context.Context, prefix, after string, max int) ([]Record, error) {
	all, _, err := e.list(ctx, prefix, after, max, 0)
	return all, err
}

// list returns records as of a revision of etcd, 0 for the current one, and that revision.
func (e *Etcd) list(ctx context.Context, prefix, after string, max int, revision int64) ([]Record, int64, error) {
	call, cancel := context.WithTimeout(ctx, etcdCall)
	defer cancel()
	resp, err := e.client.Get(call, e.prefix+firstKey(prefix, after), clientv3.WithRange(clientv3.GetPrefixRangeEnd(e.prefix+prefix)),
		clientv3.WithLimit(int64(max)), clientv3.WithRev(revision))
	if err = e.failed(ctx, err); err != nil {
		return nil, 0, err
	}
	all := make([]Record, len(resp.Kvs))
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

// Commit implements Store.
func (e *Etcd) Commit(ctx context.Context, tx Tx) error {
	if err := tx.check(); err != nil {
		return err
	}
	var conditions []clientv3.Cmp
	for _, r := range tx.If {
		conditions = append(conditions, clientv3.Compare(clientv3.ModRevision(e.prefix+r.Key), "=", r.Version))
	}
	var ops []clientv3.Op
	for _, r := range tx.Put {
		ops = append(ops, clientv3.OpPut(e.prefix+r.Key, string(pack(r))))
	}
	for _, key := range tx.Delete {
		ops = append(ops, clientv3.OpDelete(e.prefix+key))
	}
	call, cancel := context.WithTimeout(ctx, etcdCall)
	defer cancel()
	resp, err := e.client.Txn(call).If(conditions...).Then(ops...).Commit()
	if err == nil && !resp.Succeeded {
		err = ErrConflict
	}
	return e.failed(ctx, err)
}

// Watch implements Store.
func (e *Etcd) Watch(ctx context.Context, prefix string, f func([]Change, bool)) {
	for {
		e.follow(ctx, prefix, f)
		select {
		case <-time.After(etcdPause):
		case <-ctx.Done():
			return
		}
	}
}

// follow is Watch until it misses a change.
func (e *Etcd) follow(ctx context.Context, prefix string, f func([]Change, bool)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var changes []Change
	revision := int64(0)
	for after := ""; ; {
		records, at, err := e.list(ctx, prefix, after, page, revision)
		if err != nil {
			return
		}
		revision = at
		for _, r := range records {
			changes = append(changes, Change{Record: r})
		}
		if len(records) < page {
			break
		}
		after = records[page-1].Key
	}
	f(changes, true)
	// A member that has lost the others reports that, instead of staying silent.
	news := e.client.Watch(clientv3.WithRequireLeader(ctx), e.prefix+prefix, clientv3.WithPrefix(), clientv3.WithRev(revision+1))
	for resp := range news {
		if resp.Err() != nil {
			return
		}
		changes := make([]Change, 0, len(resp.Events))
		for _, ev := range resp.Events {
			if ev.Type == clientv3.EventTypeDelete {
				changes = append(changes, Change{Record: Record{Key: strings.TrimPrefix(string(ev.Kv.Key), e.prefix)}, Deleted: true})
				continue
			}
			r, err := e.record(ev.Kv)
			if err != nil {
				return
			}
			changes = append(changes, Change{Record: r})
		}
		if len(changes) > 0 {
			f(changes, false)
		}
	}
}

// Close implements Store.
func (e *Etcd) Close() error { return e.client.Close() }
