package enrol

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/sleep"
	"github.com/isthmus-grid/isthmus/internal/store"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Used records in a store which tokens were used, until they expire, and the result of each use.
// Several servers may share the store. Safe for concurrent use.
//
// The key token/TOKEN has the number of uses of a token, and use/TOKEN/WHO the certificates of a
// use; TOKEN and WHO are hashes. One commit writes both.
type Used struct {
	s    store.Store
	max  int64
	uses atomic.Int64 // records as of the last prune, and those added since
}

// use is one use of a token.
type use struct {
	token   string           // what is used up: a nonce, or an identity provider's id of its token
	times   int              // how many times the token works
	who     control.Identity // whom the certificate is for
	expires time.Time        // when the token expires

	// once reports whether each identity has one use. Otherwise each applicant's key has one.
	once bool
}

// given is the value of a use's record.
type given struct {
	Key   string   `json:"key"`   // hash of the public key that was asked with
	Chain [][]byte `json:"chain"` // DER
}

// tally is the value of a token's record.
type tally struct {
	Uses int `json:"uses"`
}

// errUsed is the error of Take for a used token that works once.
var errUsed = errors.New("the token was used already; each works once, ask the administrator of the CA for another")

const (
	maxRemembered = 100_000         // bounds the uses of tokens that have not expired
	takeTimeout   = 6 * time.Second // bounds one Take
	takeTries     = 3               // of one Take while the store fails
)

// newUsed returns the records in the store.
func newUsed(s store.Store) *Used { return &Used{s: s, max: maxRemembered} }

func hash(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:16])
}

// keys returns the keys of a use and of its token in the store.
func (u use) keys(key string) (ofUse, ofToken string) {
	t := hash("token", u.token)
	if u.once {
		key = ""
	}
	return "use/" + t + "/" + hash("use", u.who.Key(), key), "token/" + t
}

// keyOf is the hash of the public key in a certificate.
func keyOf(der []byte) (string, error) {
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return "", err
	}
	return hash("key", string(cert.RawSubjectPublicKeyInfo)), nil
}

// Take counts a use of a token, for which a chain was created, and returns the chain to send once
// that is in the store. A client that repeats the request for the same identity with the same key,
// because it got no answer, gets the first chain, and no further use is counted. After an error no
// certificate may be sent.
func (u *Used) Take(ctx context.Context, one use, chain [][]byte, now time.Time) ([][]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, takeTimeout)
	defer cancel()
	key, err := keyOf(chain[0])
	if err != nil {
		return nil, err
	}
	for failures := 0; ; {
		got, err := u.try(ctx, one, key, chain, now)
		switch {
		case err == nil:
			return got, nil
		case errors.Is(err, store.ErrConflict): // another server was faster: read again
			failures = 0
		case errors.Is(err, store.ErrUnavailable): // it may have been written nevertheless: read again
			failures++
		default:
			return nil, err
		}
		if failures == takeTries || ctx.Err() != nil {
			return nil, fmt.Errorf("the use of the token cannot be kept: %w", err)
		}
		sleep.For(ctx, rand.N(10*time.Millisecond))
	}
}

// try is one attempt of Take.
func (u *Used) try(ctx context.Context, one use, key string, chain [][]byte, now time.Time) ([][]byte, error) {
	ofUse, ofToken := one.keys(key)
	before, err := u.s.Get(ctx, ofUse)
	if err != nil {
		return nil, err
	}
	if before.Version != 0 {
		return repeatAnswer(before, one, key)
	}
	token, err := u.s.Get(ctx, ofToken)
	if err != nil {
		return nil, err
	}
	var count tally
	if token.Version != 0 {
		if err := json.Unmarshal(token.Value, &count); err != nil {
			return nil, fmt.Errorf("the store's record of the token: %w", err)
		}
	}
	switch {
	case count.Uses >= one.times && one.times == 1:
		return nil, errUsed
	case count.Uses >= one.times:
		return nil, fmt.Errorf("the token was used %d times already, all that it is good for", count.Uses)
	case u.uses.Load() >= u.max:
		return nil, fmt.Errorf("%w: %d used tokens are remembered, the limit, until the first expires", overlay.ErrOverloaded, u.max)
	}
	count.Uses++
	counted, err := json.Marshal(count)
	if err != nil {
		return nil, err
	}
	record, err := json.Marshal(given{key, chain})
	if err != nil {
		return nil, err
	}
	err = u.s.Commit(ctx, store.Tx{
		If: []store.Record{before, token},
		Put: []store.Record{
			{Key: ofToken, Value: counted, Expires: one.expires},
			{Key: ofUse, Value: record, Expires: one.expires},
		},
	})
	if err != nil {
		return nil, err
	}
	u.uses.Add(1)
	return chain, nil
}

// repeatAnswer returns the result of an earlier use if the request is the same.
func repeatAnswer(before store.Record, one use, key string) ([][]byte, error) {
	var g given
	if err := json.Unmarshal(before.Value, &g); err != nil || len(g.Chain) == 0 {
		return nil, fmt.Errorf("the store's record of the use of the token cannot be read (%v)", err)
	}
	if g.Key != key {
		return nil, fmt.Errorf("the token was used by %v already, with another key; each name can use it once", one.who)
	}
	return g.Chain, nil
}

// Prune removes what has expired.
func (u *Used) Prune(ctx context.Context, now time.Time) error {
	left, err := store.Prune(ctx, u.s, "use/", now)
	if err != nil {
		return err
	}
	u.uses.Store(int64(left))
	_, err = store.Prune(ctx, u.s, "token/", now)
	return err
}
