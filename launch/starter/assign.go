package starter

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Range is the range of accounts for jobs of users that no rule maps. Nothing else may use them.
type Range struct{ First, Last uint32 }

// Has reports whether an account is in the range.
func (r Range) Has(uid uint32) bool { return uid >= r.First && uid <= r.Last }

// Mapped is a rule: jobs of matching identities run in an account.
type Mapped struct {
	Identity string // USER@SITE/NODE, a pattern of path.Match
	UID      uint32
}

// accounts assigns an account to each job. It does not look at processes: the caller reports which
// accounts are in use.
type accounts struct {
	rules    []Mapped
	free     Range
	excluded []uint32          // accounts that no job gets, whatever a rule says
	live     map[uint32]string // the submitter whose jobs an account runs now; "" if unknown
	used     []uint32          // accounts of the range in the order of their last use, oldest first
	next     uint32            // how many of the range were assigned at least once
}

// submitter returns what counts as one submitter, and the rule that maps its jobs; nil: none does.
// It is the whole identity, as the node vouches for it that it names: an account of the same name or
// number at another node may be somebody else's. Only a rule that names user and site without a
// pattern, such as alice@sitea/*, says that they are one on all nodes that match it.
func (a *accounts) submitter(identity string) (who string, rule *Mapped) {
	for i, r := range a.rules {
		if ok, _ := path.Match(r.Identity, identity); !ok {
			continue
		}
		if user, _, _ := strings.Cut(r.Identity, "/"); !strings.ContainsAny(user, `*?[\`) {
			return user, &a.rules[i]
		}
		return identity, &a.rules[i]
	}
	return identity, nil
}

// assign returns the account for a job of an identity. No two submitters share one at a time; of
// the range, it assigns the account that was used longest ago.
func (a *accounts) assign(identity string) (uint32, error) {
	who, r := a.submitter(identity)
	if r != nil {
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

// check refuses accounts that can read keys or have root's rights.
func (a *accounts) check(uid uint32) error {
	if uid == 0 || slices.Contains(a.excluded, uid) {
		return fmt.Errorf("account %d runs no jobs: it is root's, or may read the keys of a daemon", uid)
	}
	return nil
}

// begins records that an account runs a job of an identity. One that an earlier starter gave to two
// submitters is nobody's until both have ended.
func (a *accounts) begins(uid uint32, identity string) {
	who, _ := a.submitter(identity)
	if owner, lives := a.live[uid]; lives && owner != who {
		who = ""
	}
	a.live[uid] = who
}

// ends records that an account runs no job any more.
func (a *accounts) ends(uid uint32) {
	delete(a.live, uid)
	if i := slices.Index(a.used, uid); i >= 0 {
		a.used = append(slices.Delete(a.used, i, i+1), uid)
	}
}
