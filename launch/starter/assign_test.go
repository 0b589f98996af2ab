package starter

import (
	"fmt"
	"math/rand/v2"
	"slices"
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
			who := fmt.Sprintf("%s@%s", []string{"alice", "bob", "carol", "dave"}[rng.IntN(4)], []string{"a", "b"}[rng.IntN(2)])
			identity := fmt.Sprintf("%s/n%d", who, rng.IntN(2))
			uid, err := a.assign(identity)
			had, lives := owner[uid]
			mapped := map[bool]uint32{who == "alice@a": 5, identity == who[:len(who)-1]+"b/n1": 6}[true]
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
