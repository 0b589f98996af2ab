package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/store"
)

// eachEtcd starts an etcd, where tests may have processes, and returns how to open it.
var eachEtcd func(*testing.T) (open func() store.Store)

// each runs a test with every kind of store. again opens the same store another time: at another
// broker, or after a restart where only one process can have it open.
func each(t *testing.T, f func(t *testing.T, s store.Store, again func() store.Store)) {
	t.Run("memory", func(t *testing.T) {
		s := store.NewMemory()
		f(t, s, func() store.Store { return s })
	})
	t.Run("bolt", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "broker.db")
		open := func() *store.Bolt {
			s, err := store.OpenBolt(file)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			return s
		}
		s := open()
		f(t, s, func() store.Store { s.Close(); return open() })
	})
	if eachEtcd != nil {
		t.Run("etcd", func(t *testing.T) {
			open := eachEtcd(t)
			f(t, open(), open)
		})
	}
}

// Random transactions have the same effect on every store as on a map.
func TestStoresDoAsAMapDoes(t *testing.T) {
	each(t, func(t *testing.T, s store.Store, again func() store.Store) {
		ctx := t.Context()
		seed := rand.Uint64()
		r := rand.New(rand.NewPCG(seed, 1))
		model := map[string]string{}
		versions := map[string]int64{} // as last returned by the store
		seen := map[int64]bool{}
		key := func() string { return fmt.Sprintf("%c/%d", 'a'+r.IntN(3), r.IntN(4)) }
		for i := range 300 {
			var tx store.Tx
			holds := true
			written := map[string]bool{}
			for range r.IntN(3) {
				k := key()
				version := versions[k]
				if r.IntN(4) == 0 {
					version += 1 + int64(r.IntN(3))
					holds = false
				}
				tx.If = append(tx.If, store.Record{Key: k, Version: version})
			}
			for range r.IntN(4) {
				k := key()
				if written[k] { // a transaction writes a key once
					continue
				}
				written[k] = true
				if r.IntN(3) == 0 {
					tx.Delete = append(tx.Delete, k)
				} else {
					tx.Put = append(tx.Put, store.Record{Key: k, Value: fmt.Append(nil, i), Expires: time.UnixMilli(int64(i + 1))})
				}
			}
			err := s.Commit(ctx, tx)
			if holds != (err == nil) || err != nil && !errors.Is(err, store.ErrConflict) {
				t.Fatalf("seed %d, step %d: conditions hold: %v; %v", seed, i, holds, err)
			}
			if err == nil {
				for _, p := range tx.Put {
					model[p.Key] = string(p.Value)
				}
				for _, k := range tx.Delete {
					delete(model, k)
				}
			}
			if i == 150 {
				s = again()
			}
			clear(versions)
			for _, prefix := range []string{"a/", "b/", "c/"} {
				var keys []string
				err := store.All(ctx, s, prefix, func(records []store.Record) error {
					for _, rec := range records {
						keys = append(keys, rec.Key)
						one, err := s.Get(ctx, rec.Key)
						if err != nil || string(rec.Value) != model[rec.Key] || one.Version != rec.Version || !bytes.Equal(one.Value, rec.Value) || !one.Expires.Equal(rec.Expires) || rec.Version == 0 {
							t.Errorf("seed %d, step %d: %+v and %+v, want %q (%v)", seed, i, rec, one, model[rec.Key], err)
						}
						versions[rec.Key] = rec.Version
					}
					return nil
				})
				want := 0
				for k := range model {
					if strings.HasPrefix(k, prefix) {
						want++
					}
				}
				if err != nil || len(keys) != want || !slices.IsSorted(keys) {
					t.Fatalf("seed %d, step %d: %v, want %d (%v)", seed, i, keys, want, err)
				}
			}
			seen[int64(len(versions))] = true
		}
		if len(seen) < 4 {
			t.Errorf("only %d sizes were seen", len(seen))
		}
		page, err := s.List(ctx, "a/", "a/0", 1)
		if err != nil || len(page) > 1 || len(page) == 1 && page[0].Key <= "a/0" {
			t.Errorf("a page: %v, %v", page, err)
		}
	})
}

// If many callers try to create a record, one succeeds.
func TestOneTakes(t *testing.T) {
	each(t, func(t *testing.T, s store.Store, _ func() store.Store) {
		var all sync.WaitGroup
		var mu sync.Mutex
		got := 0
		for i := range 16 {
			all.Go(func() {
				err := s.Commit(t.Context(), store.Tx{If: []store.Record{{Key: "one"}}, Put: []store.Record{{Key: "one", Value: []byte{byte(i)}}}})
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					got++
				} else if !errors.Is(err, store.ErrConflict) {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if got != 1 {
			t.Errorf("%d took it", got)
		}
	})
}

// The changes from a watch add up to the content, whatever happened in between.
func TestWatch(t *testing.T) {
	each(t, func(t *testing.T, s store.Store, _ func() store.Store) {
		put := func(s store.Store, key, value string) {
			t.Helper()
			if err := s.Commit(t.Context(), store.Tx{Put: []store.Record{{Key: key, Value: []byte(value)}}}); err != nil {
				t.Fatal(err)
			}
		}
		put(s, "n/a", "1")
		put(s, "m/a", "elsewhere")
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		view := map[string]string{}
		told := make(chan map[string]string)
		var watching sync.WaitGroup
		watching.Go(func() {
			s.Watch(ctx, "n/", func(changes []store.Change, whole bool) {
				if whole {
					clear(view)
				}
				for _, c := range changes {
					if c.Deleted {
						delete(view, c.Key)
					} else {
						view[c.Key] = string(c.Value)
					}
				}
				now := map[string]string{}
				for k, v := range view {
					now[k] = v
				}
				select {
				case told <- now:
				case <-ctx.Done():
				}
			})
		})
		defer watching.Wait()
		defer cancel()
		until := func(want string) {
			t.Helper()
			for {
				select {
				case now := <-told:
					if fmt.Sprint(now) == want {
						return
					}
				case <-ctx.Done():
					t.Fatalf("never %s", want)
				}
			}
		}
		until("map[n/a:1]")
		put(s, "n/b", "2")
		until("map[n/a:1 n/b:2]")
		if err := s.Commit(ctx, store.Tx{Delete: []string{"n/a"}}); err != nil {
			t.Fatal(err)
		}
		until("map[n/b:2]")
	})
}

func TestPrune(t *testing.T) {
	s := store.NewMemory()
	now := time.Now()
	for i := range 700 {
		r := store.Record{Key: fmt.Sprintf("u/%03d", i)}
		if i%7 > 0 {
			r.Expires = now.Add(time.Duration(i%2) * time.Hour)
		}
		if err := s.Commit(t.Context(), store.Tx{Put: []store.Record{r}}); err != nil {
			t.Fatal(err)
		}
	}
	left, err := store.Prune(t.Context(), s, "u/", now)
	if err != nil || left != 400 {
		t.Errorf("%d are left, %v", left, err)
	}
	records, _ := s.List(t.Context(), "u/", "", 1000)
	if len(records) != 400 {
		t.Errorf("%d are there", len(records))
	}
}

func TestBoltIsOneProcess(t *testing.T) {
	file := filepath.Join(t.TempDir(), "broker.db")
	s, err := store.OpenBolt(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.OpenBolt(file); !errors.Is(err, store.ErrLocked) || !strings.Contains(err.Error(), "each broker on a host needs its own file") {
		t.Errorf("the second: %v", err)
	}
	s.Close()
	if _, err := s.Get(t.Context(), "a"); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("after Close: %v", err)
	}
	if err := os.WriteFile(file, []byte(strings.Repeat("something else", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := store.OpenBolt(file); err == nil || errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "is it the right file?") {
		t.Errorf("another file: %v", err)
	}
}

// The power fails while a token's use is written: of the pages that the commit changes, any prefix
// is on disk, the last one torn, or, in any order, any subset of those before the last, which alone
// commits the others. The content is then the state before or the state after, and never the state
// after before all of it is on disk.
func TestBoltTornWrites(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "broker.db")
	s, err := store.OpenBolt(file)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		if err := s.Commit(t.Context(), store.Tx{Put: []store.Record{{Key: fmt.Sprintf("use/%d", i), Value: bytes.Repeat([]byte{byte(i)}, 700)}}}); err != nil {
			t.Fatal(err)
		}
	}
	before := read(t, file)
	if err := s.Commit(t.Context(), store.Tx{If: []store.Record{{Key: "use/new"}}, Put: []store.Record{{Key: "use/new", Value: []byte("taken")}, {Key: "token/new", Value: []byte("1")}}}); err != nil {
		t.Fatal(err)
	}
	s.Close()
	after := read(t, file)
	const pageSize = 4096
	for len(before) < len(after) {
		before = append(before, 0)
	}
	var changed []int
	for at := 0; at < len(after); at += pageSize {
		if !bytes.Equal(before[at:at+pageSize], after[at:at+pageSize]) {
			changed = append(changed, at)
		}
	}
	// The meta pages are the first two: the one that changed is written last.
	meta := changed[0]
	if meta >= 2*pageSize {
		t.Fatalf("the commit changed the pages at %v", changed)
	}
	data := changed[1:]
	images := 0
	check := func(image []byte, whole bool) {
		t.Helper()
		images++
		torn := filepath.Join(dir, "torn.db")
		if err := os.WriteFile(torn, image, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := store.OpenBolt(torn)
		if err != nil {
			t.Fatalf("image %d: %v", images, err)
		}
		defer s.Close()
		use, err1 := s.Get(t.Context(), "use/new")
		token, err2 := s.Get(t.Context(), "token/new")
		old, err3 := s.Get(t.Context(), "use/39")
		if err := errors.Join(err1, err2, err3); err != nil {
			t.Fatalf("image %d: %v", images, err)
		}
		if taken := use.Version != 0; taken != (token.Version != 0) || taken != whole || len(old.Value) != 700 {
			t.Errorf("image %d: the use is there: %v, its token: %v; all of it was written: %v", images, taken, token.Version != 0, whole)
		}
		// And the file works: the use can be recorded if it is not yet.
		err = s.Commit(t.Context(), store.Tx{If: []store.Record{{Key: "use/new"}}, Put: []store.Record{{Key: "use/new"}}})
		if errors.Is(err, store.ErrConflict) != whole || err != nil && !whole {
			t.Errorf("image %d: taking the use: %v", images, err)
		}
	}
	image := func(pages []int, tornAt, tornBytes int) []byte {
		b := bytes.Clone(before)
		for _, at := range pages {
			copy(b[at:at+pageSize], after[at:at+pageSize])
		}
		copy(b[tornAt:tornAt+tornBytes], after[tornAt:tornAt+tornBytes])
		return b
	}
	for n, at := range data { // in order
		for _, tear := range []int{0, 1, 512, pageSize / 2, pageSize - 1} {
			check(image(data[:n], at, tear), false)
		}
	}
	for some := range min(1<<len(data), 64) { // without order
		var pages []int
		for i, at := range data {
			if some>>i&1 == 1 {
				pages = append(pages, at)
			}
		}
		check(image(pages, 0, 0), false)
	}
	for _, tear := range []int{1, 16, 32, 64} { // a torn meta page is invalid
		check(image(data, meta, tear), false)
	}
	check(image(changed, 0, 0), true)
	t.Logf("%d images, of %d pages", images, len(changed))
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestParseEtcd(t *testing.T) {
	a, err := store.ParseEtcd("etcd://10.0.0.1:2379,[2001:db8::1]:2379/grid/a/")
	if err != nil || a.String() != "etcd://10.0.0.1:2379,[2001:db8::1]:2379/grid/a" || a.Local() {
		t.Errorf("%v, %v", a, err)
	}
	if a, err := store.ParseEtcd("etcd://127.0.0.1:1,[::1]:2/x"); err != nil || !a.Local() {
		t.Errorf("%v, %v", a, err)
	}
	for _, bad := range []string{"", "http://a:1/x", "etcd://a:1", "etcd://a:1/", "etcd://a/x", "etcd:///x", "etcd://a:1,/x"} {
		if _, err := store.ParseEtcd(bad); err == nil || !strings.Contains(err.Error(), "write etcd://") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// A file that a disk or an admin has damaged is an error that says so, however it is damaged, and ends
// no daemon.
func TestDamagedFile(t *testing.T) {
	dir := t.TempDir()
	good := filepath.Join(dir, "good.db")
	s, err := store.OpenBolt(good)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		if err := s.Commit(t.Context(), store.Tx{Put: []store.Record{{Key: fmt.Sprintf("key/%02d", i), Value: bytes.Repeat([]byte{byte(i)}, 500)}}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	page := os.Getpagesize()
	damaged := map[string][]byte{
		"empty": {}, "one byte": text[:1], "text": []byte("what was used\n"), "text of a page": bytes.Repeat([]byte("revoked\n"), page/4),
		"one page": text[:page], "two pages": text[:2*page], "cut off": text[:len(text)/2], "zeros": make([]byte, len(text)),
	}
	for at := 0; at+page <= min(len(text), 16*page); at += page {
		for what, with := range map[string]byte{"ones": 0xff, "zeros": 0} {
			one := slices.Clone(text)
			copy(one[at:at+page], bytes.Repeat([]byte{with}, page))
			damaged[fmt.Sprintf("%s at %d", what, at)] = one
		}
	}
	for what, text := range damaged {
		file := filepath.Join(dir, what+".db") // another one each time: one that could not be opened stays locked
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := store.OpenBolt(file)
		if err == nil { // the damage is where nothing is, or is found later
			all, listErr := s.List(t.Context(), "", "", 100)
			commitErr := s.Commit(t.Context(), store.Tx{Put: []store.Record{{Key: "key/00"}}})
			if len(all) < 19 && listErr == nil { // without its newest page it is as before the last commit
				t.Errorf("%s: %d records, and no error", what, len(all))
			}
			t.Logf("%s: %d records; %v; %v", what, len(all), listErr, commitErr)
			s.Close()
		} else if !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v does not name the file", what, err)
		}
	}
}
