package starter

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Range is the accounts that jobs of users get whom no rule maps. Nobody else has them.
type Range struct{ First, Last uint32 }

// Has reports whether an account is in the range.
func (r Range) Has(uid uint32) bool { return uid >= r.First && uid <= r.Last }

// Mapped is a rule: jobs of whose identity fits the pattern run as an account.
type Mapped struct {
	Identity string // USER@SITE/NODE, a pattern of path.Match
	UID      uint32
}

// accounts decides which account a job gets. It knows no processes: what lives, it is
// told.
type accounts struct {
	rules []Mapped
	free  Range
	never []uint32          // that no job gets, whatever a rule says
	live  map[uint32]string // whose jobs an account has now; "" where that is not known
	used  []uint32          // accounts of the range that were given out, longest ago first
	next  uint32            // how many of the range were given out at least once
}

// submitterOf is who counts as one: the same user of a site, from whichever of its nodes.
func submitterOf(identity string) string {
	user, _, _ := strings.Cut(identity, "/")
	return user
}

// assign returns the account for a job of an identity. No two submitters have the same at
// a time; of the range, the one is given that was used longest ago.
func (a *accounts) assign(identity string) (uint32, error) {
	who := submitterOf(identity)
	for _, r := range a.rules {
		if ok, _ := path.Match(r.Identity, identity); !ok {
			continue
		}
		if owner, lives := a.live[r.UID]; lives && owner != who {
			return 0, fmt.Errorf("account %d, to which map gives %s, runs a job of %s now: accounts are not shared; map them to different ones", r.UID, identity, owner)
		}
		return r.UID, a.check(r.UID)
	}
	for uid, owner := range a.live {
		if owner == who && a.free.Has(uid) {
			return uid, nil
		}
	}
	for uint64(a.free.First)+uint64(a.next) <= uint64(a.free.Last) {
		uid := a.free.First + a.next
		a.next++
		if _, lives := a.live[uid]; !lives {
			a.used = append(a.used, uid)
			return uid, a.check(uid)
		}
		a.used = append(a.used, uid)
	}
	for i, uid := range a.used {
		if _, lives := a.live[uid]; !lives {
			a.used = append(slices.Delete(a.used, i, i+1), uid)
			return uid, a.check(uid)
		}
	}
	return 0, fmt.Errorf("all %d accounts of uids run jobs of others; name more", uint64(a.free.Last)-uint64(a.free.First)+1)
}

// check refuses accounts that could read keys or do anything.
func (a *accounts) check(uid uint32) error {
	if uid == 0 || slices.Contains(a.never, uid) {
		return fmt.Errorf("account %d runs no jobs: it is root's, or may read the keys of a daemon", uid)
	}
	return nil
}

// begins notes that an account has a job of an identity.
func (a *accounts) begins(uid uint32, identity string) { a.live[uid] = submitterOf(identity) }

// ends notes that an account has no job any more.
func (a *accounts) ends(uid uint32) {
	delete(a.live, uid)
	if i := slices.Index(a.used, uid); i >= 0 {
		a.used = append(slices.Delete(a.used, i, i+1), uid)
	}
}
