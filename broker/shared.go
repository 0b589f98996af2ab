package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/broker/registry"
	"github.com/isthmus-grid/isthmus/internal/store"
	"github.com/isthmus-grid/isthmus/overlay"
)

const (
	keyName  = "name/"
	keyLease = "lease/"
)

// sharedNames are the published names in the store: they outlive the broker, and all brokers that
// share the store have the same names. A name is deleted when its process unpublishes it or ends,
// or when no broker has renewed the lease of its site. Safe for concurrent use; without a store all
// methods do nothing.
//
// The registry has the names of the sites with sessions here; sharedNames has the names beyond
// those.
type sharedNames struct {
	store *storeManager
	lease time.Duration // the setting "lease"
	log   *slog.Logger
	wake  chan struct{} // signals that there are names to delete

	mu      sync.Mutex // guards the fields below; never held during a call to the store
	names   map[string]sharedName
	owners  map[overlay.ProcessName]map[string]bool // names by their owner
	gone    map[string]sharedName                   // to be deleted from the store; treated as deleted
	waiters map[string]*nameWaiters                 // callers waiting for names that do not exist

	// Used only by serve.
	renewed time.Time // when leases were last renewed
	fine    time.Time // since when all renewals have succeeded; zero: the last one failed
	leases  map[overlay.SiteID]seenLease
}

// seenLease is the lease of an absent site, as this broker first saw it in that version.
type seenLease struct {
	version int64
	at      time.Time
}

// sharedName is one published name. Its JSON is the value in the store.
type sharedName struct {
	Job        overlay.JobID      `json:"job"`
	Rank       uint32             `json:"rank"`
	Generation overlay.Generation `json:"generation"`
	Site       overlay.SiteID     `json:"site"`
	Port       string             `json:"port"`

	seen time.Time // when this broker learned of it
}

func (n sharedName) process() overlay.ProcessName {
	return overlay.ProcessName{Job: n.Job, Rank: n.Rank}
}

// equal reports whether both are the same publication.
func (n sharedName) equal(o sharedName) bool {
	n.seen = o.seen
	return n == o
}

func newSharedNames(s *storeManager, lease time.Duration, log *slog.Logger) *sharedNames {
	return &sharedNames{
		store: s, lease: lease, log: log, wake: make(chan struct{}, 1),
		names: map[string]sharedName{}, owners: map[overlay.ProcessName]map[string]bool{}, gone: map[string]sharedName{}, waiters: map[string]*nameWaiters{},
	}
}

// publish writes a name of a process at a site to the store, unless another process owns it.
func (n *sharedNames) publish(ctx context.Context, site overlay.SiteID, p overlay.Publication) error {
	if !n.store.enabled() {
		return nil
	}
	want := sharedName{Job: p.Process.Job, Rank: p.Process.Rank, Generation: p.Generation, Site: site, Port: p.Port}
	n.mu.Lock()
	has, known := n.names[p.Name]
	count := len(n.names)
	n.mu.Unlock()
	if !known && count >= registry.MaxNames {
		return fmt.Errorf("%w: %d names are published, the limit", overlay.ErrOverloaded, count)
	}
	value, err := json.Marshal(want)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, storeCall)
	defer cancel()
	for {
		r, err := n.store.Get(ctx, keyName+p.Name)
		switch {
		case err == nil:
		case known && has.equal(want): // published before and repeated now, while the store is unavailable
			return nil
		default:
			return fmt.Errorf("%q is not published: %w", p.Name, err)
		}
		if has, ok := readName(r); ok && has.process() != p.Process && !n.isGone(p.Name, has) {
			return fmt.Errorf("%w: %q belongs to %v until that unpublishes it or ends; choose another name", overlay.ErrNameTaken, p.Name, has.process())
		} else if ok && has.equal(want) {
			n.learn(p.Name, want)
			return nil
		}
		err = n.store.Commit(ctx, store.Tx{
			If:  []store.Record{r},
			Put: []store.Record{{Key: r.Key, Value: value}, n.leaseOf(site, time.Now())},
		})
		switch {
		case err == nil:
			n.learn(p.Name, want)
			return nil
		case !errors.Is(err, store.ErrConflict):
			return fmt.Errorf("%q is not published: %w", p.Name, err)
		}
	}
}

func (n *sharedNames) leaseOf(site overlay.SiteID, now time.Time) store.Record {
	return store.Record{Key: keyLease + string(site), Expires: now.Add(n.lease)}
}

func readName(r store.Record) (one sharedName, ok bool) {
	return one, r.Version != 0 && json.Unmarshal(r.Value, &one) == nil
}

func (n *sharedNames) isGone(name string, has sharedName) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	gone, ok := n.gone[name]
	return ok && gone.equal(has)
}

// learn records that a name is published, and wakes its waiters.
func (n *sharedNames) learn(name string, one sharedName) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if gone, ok := n.gone[name]; ok && !gone.equal(one) {
		delete(n.gone, name)
	}
	if had, ok := n.names[name]; ok && had.equal(one) {
		return
	}
	n.remove(name)
	one.seen = time.Now()
	n.names[name] = one
	if n.owners[one.process()] == nil {
		n.owners[one.process()] = map[string]bool{}
	}
	n.owners[one.process()][name] = true
	if w := n.waiters[name]; w != nil {
		close(w.done)
		delete(n.waiters, name)
	}
}

// unpublish schedules the deletion of a process's name.
func (n *sharedNames) unpublish(name string, process overlay.ProcessName) {
	n.drop(process, func(has string, _ sharedName) bool { return has == name })
}

// ended schedules the deletion of the names of a process at a site, for generations up to the given
// one.
func (n *sharedNames) ended(site overlay.SiteID, process overlay.ProcessName, generation overlay.Generation) {
	n.drop(process, func(_ string, one sharedName) bool { return one.Site == site && one.Generation <= generation })
}

// drop deletes names of a process: at once for lookups at this broker, and in the store as soon as
// it can be written.
func (n *sharedNames) drop(process overlay.ProcessName, is func(name string, one sharedName) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for name := range n.owners[process] {
		one := n.names[name]
		if _, already := n.gone[name]; already || !is(name, one) {
			continue
		}
		n.gone[name] = one
		select {
		case n.wake <- struct{}{}:
		default:
		}
	}
}

// lookup returns a name, or waiters whose channel is closed when the name is published; the caller
// must pass them to leave.
func (n *sharedNames) lookup(name string) (p overlay.Publication, w *nameWaiters) {
	n.mu.Lock()
	defer n.mu.Unlock()
	one, ok := n.names[name]
	if _, gone := n.gone[name]; ok && !gone {
		return overlay.Publication{Name: name, Port: one.Port, Process: one.process(), Generation: one.Generation}, nil
	}
	if w = n.waiters[name]; w == nil {
		w = &nameWaiters{done: make(chan struct{})}
		n.waiters[name] = w
	}
	w.count++
	return p, w
}

// count returns how many names are published: in the store if there is one, else in the registry.
func (n *sharedNames) count(registered int) int {
	if !n.store.enabled() {
		return registered
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.names) - len(n.gone)
}

// nameWaiters are the callers waiting for one name; done is closed when it is published.
type nameWaiters struct {
	done  chan struct{}
	count int
}

func (n *sharedNames) leave(name string, w *nameWaiters) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if w.count--; w.count == 0 && n.waiters[name] == w {
		delete(n.waiters, name)
	}
}

// follow watches the store's names until ctx ends.
func (n *sharedNames) follow(ctx context.Context) {
	if !n.store.enabled() {
		return
	}
	n.store.Watch(ctx, keyName, func(changes []store.Change, whole bool) {
		if whole {
			n.forgetBut(changes)
		}
		for _, c := range changes {
			name := strings.TrimPrefix(c.Key, keyName)
			if one, ok := readName(c.Record); ok && !c.Deleted {
				n.learn(name, one)
			} else {
				n.forget(name)
			}
		}
	})
}

func (n *sharedNames) forgetBut(there []store.Change) {
	has := make(map[string]bool, len(there))
	for _, c := range there {
		has[strings.TrimPrefix(c.Key, keyName)] = true
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for name := range n.names {
		if !has[name] {
			n.remove(name)
			delete(n.gone, name)
		}
	}
}

func (n *sharedNames) forget(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.remove(name)
	delete(n.gone, name)
}

// remove deletes a name from names and owners. The caller must hold n.mu.
func (n *sharedNames) remove(name string) {
	had, ok := n.names[name]
	if !ok {
		return
	}
	delete(n.names, name)
	if delete(n.owners[had.process()], name); len(n.owners[had.process()]) == 0 {
		delete(n.owners, had.process())
	}
}

// serve renews the leases of sites that have a session here, and deletes expired names, until ctx
// ends.
func (n *sharedNames) serve(ctx context.Context, reg *registry.Registry) {
	if !n.store.enabled() {
		return
	}
	tick := time.NewTicker(min(max(n.lease/4, 10*time.Millisecond), keepEvery))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.wake:
		case <-tick.C:
			n.sweep(ctx, reg, time.Now())
		}
		n.deleteGone(ctx)
	}
}

// all returns the current names by site.
func (n *sharedNames) all() map[overlay.SiteID]map[string]sharedName {
	n.mu.Lock()
	defer n.mu.Unlock()
	sites := map[overlay.SiteID]map[string]sharedName{}
	for name, one := range n.names {
		if sites[one.Site] == nil {
			sites[one.Site] = map[string]sharedName{}
		}
		sites[one.Site][name] = one
	}
	return sites
}

// sweep does the periodic work: renewals and deletions.
func (n *sharedNames) sweep(ctx context.Context, reg *registry.Registry, now time.Time) {
	sites := n.all()
	var here []overlay.SiteID
	away := false
	for id, names := range sites {
		site, err := reg.Site(id)
		if err != nil || site.Holder == 0 {
			away = true
			continue
		}
		here = append(here, id)
		if now.Sub(site.Since) >= n.lease {
			n.notRenewed(ctx, reg, names, now)
		}
	}
	if now.Sub(n.renewed) >= n.lease/3 {
		if err := n.renew(ctx, here, now); err != nil || n.store.Status().Error != "" {
			n.fine = time.Time{} // no broker could renew, so nothing is expired
			return
		}
		n.renewed = now
		if n.fine.IsZero() {
			n.fine = now
		}
	}
	if away && !n.fine.IsZero() {
		if err := n.prune(ctx, sites, now); err != nil {
			n.log.Warn("published names whose site is away are still in the store", "error", err)
		}
	}
}

// notRenewed schedules the deletion of names that their site's frontal has not published here
// although it has had a session here for a whole lease.
func (n *sharedNames) notRenewed(ctx context.Context, reg *registry.Registry, names map[string]sharedName, now time.Time) {
	for name, one := range names {
		if now.Sub(one.seen) < n.lease {
			continue
		}
		if p, err := reg.LookupName(ctx, name, false); err != nil || p.Process != one.process() {
			n.unpublish(name, one.process())
		}
	}
}

// renew renews the leases of sites.
func (n *sharedNames) renew(ctx context.Context, sites []overlay.SiteID, now time.Time) error {
	for len(sites) > 0 {
		some := sites[:min(len(sites), store.MaxTx)]
		sites = sites[len(some):]
		var tx store.Tx
		for _, id := range some {
			tx.Put = append(tx.Put, n.leaseOf(id, now))
		}
		call, cancel := context.WithTimeout(ctx, storeCall)
		err := n.store.Commit(call, tx)
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

// prune deletes the names of sites whose lease has expired: no broker has renewed it for the
// duration of a lease, by this broker's clock alone.
func (n *sharedNames) prune(ctx context.Context, sites map[overlay.SiteID]map[string]sharedName, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, storeCall)
	defer cancel()
	leases := map[overlay.SiteID]seenLease{}
	defer func() { n.leases = leases }()
	for id, names := range sites {
		lease, err := n.store.Get(ctx, keyLease+string(id))
		if err != nil {
			return err
		}
		seen, known := n.leases[id]
		if !known || seen.version != lease.Version {
			seen = seenLease{lease.Version, now}
		}
		leases[id] = seen
		if now.Sub(seen.at) < n.lease || now.Sub(n.fine) < n.lease {
			continue
		}
		for name, one := range names {
			if err := n.delete(ctx, name, one, lease); err != nil && !errors.Is(err, store.ErrConflict) {
				return err
			}
		}
		n.log.Info("published names dropped: the lease of their site is over", "site", string(id), "names", len(names))
		if err := n.store.Commit(ctx, store.Tx{If: []store.Record{lease}, Delete: []string{keyLease + string(id)}}); err != nil && !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
	return nil
}

// deleteGone deletes the names in gone from the store, as far as it can be written.
func (n *sharedNames) deleteGone(ctx context.Context) {
	n.mu.Lock()
	gone := make(map[string]sharedName, len(n.gone))
	for name, one := range n.gone {
		gone[name] = one
	}
	n.mu.Unlock()
	for name, one := range gone {
		call, cancel := context.WithTimeout(ctx, storeCall)
		err := n.delete(call, name, one)
		cancel()
		if err != nil && !errors.Is(err, store.ErrConflict) {
			return // the next tick tries again
		}
	}
}

// delete deletes a name if it is still that publication and the conditions hold.
func (n *sharedNames) delete(ctx context.Context, name string, one sharedName, conditions ...store.Record) error {
	r, err := n.store.Get(ctx, keyName+name)
	if err != nil {
		return err
	}
	if is, ok := readName(r); ok && !is.equal(one) {
		n.learn(name, is)
		return nil
	}
	if r.Version != 0 {
		if err := n.store.Commit(ctx, store.Tx{If: append(conditions, r), Delete: []string{r.Key}}); err != nil {
			return err
		}
	}
	n.forget(name)
	return nil
}

// publish publishes names of processes at a site, and returns one error for each.
func (b *Broker) publish(ctx context.Context, site overlay.SiteID, holder registry.Holder, list []overlay.Publication) []error {
	had := make([]bool, len(list))
	for i, p := range list {
		has, err := b.registry.LookupName(ctx, p.Name, false)
		had[i] = err == nil && has.Process == p.Process
	}
	errs := b.registry.Publish(holder, list)
	for i, p := range list {
		if errs[i] != nil {
			continue
		}
		if errs[i] = b.names.publish(ctx, site, p); errs[i] != nil && !had[i] {
			b.registry.Unpublish(holder, p)
		}
	}
	return errs
}

// lookupName returns a published name, from the registry or the store.
func (b *Broker) lookupName(ctx context.Context, name string, wait bool) (overlay.Publication, error) {
	if !b.store.enabled() {
		return b.registry.LookupName(ctx, name, wait)
	}
	for {
		p, w := b.names.lookup(name)
		if w == nil {
			return p, nil
		}
		if !wait {
			b.names.leave(name, w)
			return b.registry.LookupName(ctx, name, false)
		}
		call, cancel := context.WithCancel(ctx)
		var watching sync.WaitGroup
		watching.Go(func() {
			select {
			case <-w.done:
				cancel()
			case <-call.Done():
			}
		})
		p, err := b.registry.LookupName(call, name, true)
		cancel()
		watching.Wait()
		b.names.leave(name, w)
		select {
		case <-w.done: // it may have been published in the store
			if err == nil || ctx.Err() != nil {
				return p, err
			}
		default:
			return p, err
		}
	}
}
