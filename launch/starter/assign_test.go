package starter

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// A simple list records which submitter has which account and when it was last used; every
// assignment agrees with it after any history.
func TestAccountsAgainstAList(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		a := &accounts{rules: []Mapped{{"alice@a/*", 5}, {"*@b/n1", 6}}, free: Range{100, 104}, excluded: []uint32{7}, live: map[uint32]string{}}
		owner, lastUse := map[uint32]string{}, map[uint32]int{}
		for step := range 200 {
			if rng.IntN(2) == 0 {
				for uid := range owner {
					a.ends(uid)
					delete(owner, uid)
					lastUse[uid] = step
					break
				}
				continue
			}
			user := fmt.Sprintf("%s@%s", []string{"alice", "bob", "carol", "dave"}[rng.IntN(4)], []string{"a", "b"}[rng.IntN(2)])
			who := fmt.Sprintf("%s/n%d", user, rng.IntN(2))
			identity := who
			uid, err := a.assign(identity)
			mapped := uint32(0)
			switch {
			case user == "alice@a":
				who, mapped = user, 5 // a rule names this user of the site, wherever it is
			case strings.HasSuffix(identity, "@b/n1"):
				mapped = 6
			}
			had, lives := owner[uid]
			switch {
			case mapped != 0 && err != nil:
				if owner[mapped] == "" || owner[mapped] == who {
					t.Fatalf("seed %d: %s is refused account %d of %q: %v", seed, identity, mapped, owner[mapped], err)
				}
				continue
			case mapped != 0 && uid != mapped:
				t.Fatalf("seed %d: %s gets %d, the rules say %d", seed, identity, uid, mapped)
			case err != nil:
				for free := uint32(100); free <= 104; free++ {
					if owner[free] == "" || owner[free] == who {
						t.Fatalf("seed %d: %s is refused, and %d is free: %v", seed, identity, free, err)
					}
				}
				continue
			case lives && had != who:
				t.Fatalf("seed %d: %s gets %d, which %s has", seed, identity, uid, had)
			case mapped == 0 && !lives:
				for free := uint32(100); free <= 104; free++ {
					if owner[free] == who {
						t.Fatalf("seed %d: %s gets %d and has %d", seed, identity, uid, free)
					}
					if owner[free] == "" && lastUse[free] < lastUse[uid] {
						t.Fatalf("seed %d: %s gets %d of step %d, and %d was used at %d", seed, identity, uid, lastUse[uid], free, lastUse[free])
					}
				}
			}
			a.begins(uid, identity)
			owner[uid] = who
			lastUse[uid] = step
		}
	}
}

// The account of the same number at another node of the site is somebody else: it never shares an
// account with the first one. An account that an earlier starter gave to both goes to neither.
func TestSameNumberAtAnotherNode(t *testing.T) {
	a := &accounts{rules: []Mapped{{"guest@*/*", 5}}, free: Range{100, 104}, live: map[uint32]string{}}
	const one, other = "4242@a/n1", "4242@a/n2"
	first, _ := a.assign(one)
	a.begins(first, one)
	if again, err := a.assign(one); err != nil || again != first {
		t.Errorf("the same submitter gets %d and %d: %v", first, again, err)
	}
	if second, err := a.assign(other); err != nil || second == first {
		t.Errorf("%s gets %d, and %s has %d: %v", other, second, one, first, err)
	}
	a.begins(first, other) // what an earlier starter did
	for _, who := range []string{one, other} {
		if uid, err := a.assign(who); err != nil || uid == first {
			t.Errorf("%s gets %d, which runs jobs of two submitters: %v", who, uid, err)
		}
	}
	a.begins(5, "guest@a/n1")
	if uid, err := a.assign("guest@a/n2"); err == nil {
		t.Errorf("a second guest gets %d", uid)
	}
}

// No rule gives a job root's account, or the helper's.
func TestAccountsThatNobodyGets(t *testing.T) {
	a := &accounts{rules: []Mapped{{"r@a/*", 0}, {"h@a/*", 7}}, free: Range{100, 100}, excluded: []uint32{7}, live: map[uint32]string{}}
	for _, identity := range []string{"r@a/n", "h@a/n"} {
		if uid, err := a.assign(identity); err == nil {
			t.Errorf("%s gets %d", identity, uid)
		}
	}
}

// No job has root's group, or the one that may read the daemons' keys.
func TestGroupsThatNobodyGets(t *testing.T) {
	for _, gid := range []uint32{0, 7} {
		if c, err := credential(1000, gid, nil, 7); err == nil {
			t.Errorf("an account of group %d gets %+v", gid, c)
		}
	}
	c, err := credential(1000, 1001, []string{"1001", "7", "0", "20", "no number"}, 7)
	if err != nil || c.Uid != 1000 || c.Gid != 1001 || !slices.Equal(c.Groups, []uint32{1001, 20}) {
		t.Errorf("%+v, %v", c, err)
	}
}
