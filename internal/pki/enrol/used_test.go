package enrol

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/pki/ca"
	"github.com/isthmus-grid/isthmus/internal/store"
	"github.com/isthmus-grid/isthmus/overlay"
)

// chainOf creates a chain of one certificate for a new key.
func chainOf(t *testing.T, authority *ca.CA) [][]byte {
	t.Helper()
	creds, err := authority.Credentials(control.Identity{Role: control.RoleProxy, Name: "p1"})
	if err != nil {
		t.Fatal(err)
	}
	return creds.Certificate().Certificate
}

// The uses of tokens, compared with a simple count of issued certificates.
func TestTake(t *testing.T) {
	authority, err := ca.Create(t.TempDir(), "tg", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	s := store.NewMemory()
	now := time.Now()
	u := newUsed(s)
	one := use{token: "aa", times: 2, who: control.Identity{Role: control.RoleProxy, Name: "p1"}, expires: now.Add(time.Hour)}
	first, second, third := chainOf(t, authority), chainOf(t, authority), chainOf(t, authority)
	take := func(what string, chain, want [][]byte, why string) {
		t.Helper()
		got, err := u.Take(t.Context(), one, chain, now)
		if why != "" {
			refused(t, what, err, why)
		} else if err != nil || !slices.EqualFunc(got, want, bytes.Equal) {
			t.Errorf("%s: %v", what, err)
		}
	}
	take("the first", first, first, "")
	take("the same again", first, first, "")
	take("another", second, second, "")
	take("a third", third, nil, "used 2 times already")
	take("the second again", second, second, "")
	u = newUsed(s) // after a restart, or at another broker
	take("the first, later", first, first, "")
	take("the third, later", third, nil, "used 2 times already")

	one = use{token: "bb", times: 9, who: control.Identity{Role: control.RoleHelper, Site: "a", Name: "n1"}, once: true, expires: now.Add(time.Hour)}
	take("a name", first, first, "")
	take("the name with another key", second, nil, "helper a/n1 already, with another key")
	one.who.Name = "n2"
	take("another name", second, second, "")

	s.Fail(errors.New("no space left on device"))
	one.who.Name = "n3"
	take("a full disk", third, nil, "the store: no space left on device")
	s.Fail(nil)
	u.max = 0
	take("too many", third, nil, "are remembered, the limit")
	if err := u.Prune(t.Context(), now.Add(2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	if left, err := s.List(t.Context(), "", "", 10); err != nil || len(left) > 0 {
		t.Errorf("after all have expired, %d records are left (%v)", len(left), err)
	}
}

// Of many concurrent clients, at two brokers that share a store, as many get a certificate as the
// token has uses.
func TestTakeAtOnce(t *testing.T) {
	authority, err := ca.Create(t.TempDir(), "tg", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	s := store.NewMemory()
	now := time.Now()
	brokers := []*Used{newUsed(s), newUsed(s)}
	const times, askers = 5, 24
	var mu sync.Mutex
	var all sync.WaitGroup
	given := 0
	for i := range askers {
		chain := chainOf(t, authority)
		all.Go(func() {
			_, err := brokers[i%2].Take(t.Context(), use{token: "aa", times: times, who: control.Identity{Role: control.RoleProxy, Name: "p1"}, expires: now.Add(time.Hour)}, chain, now)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				given++
			} else if !strings.Contains(err.Error(), "used 5 times already") {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if given != times {
		t.Errorf("%d certificates for %d uses", given, times)
	}
}

// A crash is the panic value of a crashing store.
type crash struct{ at int }

// crashing is a store whose process ends at one of its calls: before the store executes it, or
// after.
type crashing struct {
	store.Store
	at, calls int
}

func (c *crashing) step() {
	if c.calls++; c.calls == c.at {
		panic(crash{c.at})
	}
}

func (c *crashing) Get(ctx context.Context, key string) (store.Record, error) {
	c.step()
	defer c.step()
	return c.Store.Get(ctx, key)
}

func (c *crashing) Commit(ctx context.Context, tx store.Tx) error {
	c.step()
	defer c.step()
	return c.Store.Commit(ctx, tx)
}

// A broker ends at every externally visible step of an enrolment: before and after each call of its
// store, and before and after the answer. The store is a real file, reopened after each end. The
// client retries, and so does an attacker who has the token. No token ever gives two certificates,
// and the first client gets one if its use was written.
func TestCrashAtEveryStep(t *testing.T) {
	g := newGrid(t, "tg")
	g.stop()
	var log []string
	for at := 1; ; at++ {
		file := filepath.Join(t.TempDir(), "broker.db")
		token := g.token("proxy p1", nil)
		mine, stolen := request(t), request(t)
		seen := map[string]bool{} // certificates that were sent

		// broker is one run of a broker, which answers one request and may end during it.
		broker := func(request []byte, crashAt int) (answer []byte, calls int, crashed bool, err error) {
			s, openErr := store.OpenBolt(file)
			if openErr != nil {
				t.Fatalf("crash at %d: %v", at, openErr)
			}
			defer s.Close()
			c := &crashing{Store: s, at: crashAt}
			server, openErr := New(Settings{Cert: filepath.Join(g.dir, ca.IssuerCertFile), Key: filepath.Join(g.dir, ca.IssuerKeyFile), Store: c, Longest: time.Hour}, g.creds, discard)
			if openErr != nil {
				t.Fatal(openErr)
			}
			defer func() {
				calls = c.calls
				if r := recover(); r != nil {
					if _, ours := r.(crash); !ours {
						panic(r)
					}
					crashed = true
				}
			}()
			_, chain, err := server.Enrol(t.Context(), token, request)
			if err != nil {
				return nil, 0, false, err
			}
			c.step() // before the answer
			seen[string(chain[0])] = true
			c.step() // after it, when the client may have lost its connection
			return chain[0], 0, false, nil
		}
		_, calls, crashed, err := broker(mine, at)
		if !crashed {
			if err != nil {
				t.Fatal(err)
			}
			if at <= calls {
				t.Fatalf("no crash at %d of %d", at, calls)
			}
			log = append(log, fmt.Sprintf("%d steps", calls))
			break
		}
		// The attacker comes first, if the use was not written, or too late.
		_, _, _, thiefErr := broker(stolen, 0)
		again, _, _, err := broker(mine, 0)
		if (err == nil) == (thiefErr == nil) {
			t.Errorf("crash at %d: the first one who asked: %v; the thief: %v", at, err, thiefErr)
		}
		if err == nil {
			twice, _, _, err := broker(mine, 0)
			if err != nil || !bytes.Equal(twice, again) {
				t.Errorf("crash at %d: asked a third time: %v, the same: %v", at, err, bytes.Equal(twice, again))
			}
		}
		if len(seen) != 1 {
			t.Errorf("crash at %d: %d certificates for one use", at, len(seen))
		}
	}
	t.Log(log)
}

func request(t *testing.T) []byte {
	t.Helper()
	der, _, err := ca.Request(control.Identity{Role: control.RoleProxy, Name: "p1"})
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// A store that committed but could not report it makes no token valid again, and no client loses
// its certificate.
type forgetful struct {
	store.Store
	lost int // commits that return an error
}

func (f *forgetful) Commit(ctx context.Context, tx store.Tx) error {
	err := f.Store.Commit(ctx, tx)
	if f.lost--; err == nil && f.lost >= 0 {
		return fmt.Errorf("%w: the connection was lost", store.ErrUnavailable)
	}
	return err
}

func TestCommitWithoutAnswer(t *testing.T) {
	authority, err := ca.Create(t.TempDir(), "tg", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	s := store.NewMemory()
	now := time.Now()
	u := newUsed(&forgetful{s, 1})
	one := use{token: "aa", times: 1, who: control.Identity{Role: control.RoleProxy, Name: "p1"}, expires: now.Add(time.Hour)}
	chain := chainOf(t, authority)
	if got, err := u.Take(t.Context(), one, chain, now); err != nil || !slices.EqualFunc(got, chain, bytes.Equal) {
		t.Errorf("it was written: %v", err)
	}
	_, err = u.Take(t.Context(), one, chainOf(t, authority), now)
	refused(t, "another", err, "used already")
	r, err := s.List(t.Context(), "token/", "", 2)
	var count tally
	if err != nil || len(r) != 1 || json.Unmarshal(r[0].Value, &count) != nil || count.Uses != 1 {
		t.Errorf("%d tokens, %d uses, %v", len(r), count.Uses, err)
	}
	s.Fail(errors.New("gone"))
	if _, err := u.Take(t.Context(), one, chain, now); !errors.Is(err, overlay.ErrUnreachable) {
		t.Errorf("not unreachable: %v", err)
	}
}
