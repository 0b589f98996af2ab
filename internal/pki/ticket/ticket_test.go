package ticket

import (
	"encoding/hex"
	"errors"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

var now = time.UnixMilli(1_700_000_000_000)

func claims(expires time.Time) wire.Ticket {
	return wire.Ticket{
		Link: wire.ID{1, 2, 3}, End: 1, Job: "demo-00112233445566778899aabbccddeeff",
		Asker: 3, Target: 5, Proxy: "p1", Expires: uint64(expires.UnixMilli()), Limit: 1 << 30,
	}
}

// A fixed vector keeps brokers and proxies of different builds compatible.
func TestVector(t *testing.T) {
	var key Key
	for i := range key {
		key[i] = byte(i)
	}
	got := Issue(key, claims(now)).MAC
	const want = "ff2cb4b2c28cbe575cb7995a34f14d30b9f88c3c6532a98df313c16d94ab44b4"
	if hex.EncodeToString(got[:]) != want {
		t.Errorf("MAC = %x, want %s", got, want)
	}
}

func TestCheck(t *testing.T) {
	current, previous, foreign := NewKey(), NewKey(), NewKey()
	at := func(d time.Duration) wire.Ticket { return claims(now.Add(d)) }
	for name, tc := range map[string]struct {
		ticket wire.Ticket
		fault  string
		reason Reason
	}{
		"good":                     {Issue(current, at(time.Minute)), "", ""},
		"under the previous key":   {Issue(previous, at(time.Minute)), "", ""},
		"expired within the skew":  {Issue(current, at(-Skew)), "", ""},
		"expired":                  {Issue(current, at(-8*time.Second)), "the ticket expired 8s ago", Expired},
		"expired since ever":       {Issue(current, claims(time.UnixMilli(0))), "the ticket expired 472222h13m20s ago", Expired},
		"for ever":                 {Issue(current, claims(time.UnixMilli(math.MaxInt64))), "at most 10m0s are allowed", TooLong},
		"under a foreign key":      {Issue(foreign, at(time.Minute)), "the ticket is forged or issued under another key", Forged},
		"never signed":             {at(time.Minute), "the ticket is forged or issued under another key", Forged},
		"for another proxy":        {Issue(current, change(at(time.Minute), func(t *wire.Ticket) { t.Proxy = "p2" })), "the ticket is for proxy p2, this is p1", Foreign},
		"expired and forged":       {at(-time.Hour), "forged", Forged},
		"expiry beyond all clocks": {Issue(current, change(at(0), func(t *wire.Ticket) { t.Expires = math.MaxUint64 })), "at most 10m0s", TooLong},
	} {
		err := NewChecker("p1", 10, current, previous).Check(&tc.ticket, now)
		if tc.fault == "" && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if tc.fault != "" && (!errors.Is(err, overlay.ErrForbidden) || !strings.Contains(err.Error(), tc.fault)) {
			t.Errorf("%s: %v, want %q", name, err, tc.fault)
		}
		if bad, ok := errors.AsType[*Error](err); ok && bad.Reason != tc.reason {
			t.Errorf("%s: counted as %s, want %s", name, bad.Reason, tc.reason)
		}
	}
}

func change(t wire.Ticket, f func(*wire.Ticket)) wire.Ticket { f(&t); return t }

// Every claim is covered by the MAC.
func TestChangedClaims(t *testing.T) {
	key := NewKey()
	good := Issue(key, change(claims(now.Add(time.Minute)), func(t *wire.Ticket) { t.Principal = overlay.Principal{User: "alice", Project: "climate"} }))
	if err := NewChecker("p1", 10, key).Check(&good, now); err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]func(*wire.Ticket){
		"link":    func(t *wire.Ticket) { t.Link[0]++ },
		"end":     func(t *wire.Ticket) { t.End = 0 },
		"job":     func(t *wire.Ticket) { t.Job = "mine-00112233445566778899aabbccddeeff" },
		"asker":   func(t *wire.Ticket) { t.Asker++ },
		"target":  func(t *wire.Ticket) { t.Target++ },
		"expires": func(t *wire.Ticket) { t.Expires++ },
		"limit":   func(t *wire.Ticket) { t.Limit = 0 },
		"user":    func(t *wire.Ticket) { t.Principal.User = "mallory" },
		"project": func(t *wire.Ticket) { t.Principal.Project = "fusion" },
		"unnamed": func(t *wire.Ticket) { t.Principal = overlay.Principal{} },
		"mac":     func(t *wire.Ticket) { t.MAC[31] ^= 1 },
	} {
		bad := change(good, f)
		if err := NewChecker("p1", 10, key).Check(&bad, now); err == nil || !strings.Contains(err.Error(), "forged") {
			t.Errorf("changed %s: %v", name, err)
		}
	}
}

func TestEachEndOnce(t *testing.T) {
	key := NewKey()
	c := NewChecker("p1", 10, key)
	one := Issue(key, claims(now.Add(time.Minute)))
	other := Issue(key, change(claims(now.Add(time.Minute)), func(t *wire.Ticket) { t.End = 0 }))
	for i, tc := range []struct {
		ticket wire.Ticket
		at     time.Duration
		fault  string
	}{
		{one, 0, ""},
		{one, 0, "the ticket was used before"},
		{other, 0, ""},
		{one, time.Minute + Skew, "the ticket was used before"}, // remembered to the last instant at which it is valid
		{one, time.Minute + Skew + time.Millisecond, "expired"},
	} {
		err := c.Check(&tc.ticket, now.Add(tc.at))
		if tc.fault == "" && err != nil || tc.fault != "" && (err == nil || !strings.Contains(err.Error(), tc.fault)) {
			t.Errorf("step %d: %v, want %q", i, err, tc.fault)
		}
	}
}

// A ticket presented on many connections at once works for exactly one.
func TestOnceAmongMany(t *testing.T) {
	key := NewKey()
	c := NewChecker("p1", 10, key)
	ticket := Issue(key, claims(now.Add(time.Minute)))
	var good atomic.Int32
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if c.Check(&ticket, now) == nil {
				good.Add(1)
			}
		})
	}
	all.Wait()
	if good.Load() != 1 {
		t.Errorf("the ticket worked %d times", good.Load())
	}
}

func TestMemoryIsBoundedAndFreed(t *testing.T) {
	key := NewKey()
	c := NewChecker("p1", 3, key)
	show := func(n byte, life time.Duration, at time.Duration) error {
		ticket := Issue(key, change(claims(now.Add(life)), func(t *wire.Ticket) { t.Link[15] = n }))
		return c.Check(&ticket, now.Add(at))
	}
	for n, life := range []time.Duration{3 * time.Minute, time.Minute, 2 * time.Minute} {
		if err := show(byte(n), life, 0); err != nil {
			t.Fatal(err)
		}
	}
	err := show(9, time.Minute, 0)
	if !errors.Is(err, overlay.ErrOverloaded) || !strings.Contains(err.Error(), "is full (3); the oldest is forgotten in 1m5s") {
		t.Fatalf("a fourth ticket: %v", err)
	}
	if err := show(9, 5*time.Minute, time.Minute+Skew+time.Second); err != nil {
		t.Errorf("after the first to expire is forgotten: %v", err)
	}
	if err := show(8, 10*time.Minute, 5*time.Minute); err != nil || c.Remembered() != 2 {
		t.Errorf("%v; %d tickets remembered, want 2", err, c.Remembered())
	}
}
