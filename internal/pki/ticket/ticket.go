// Package ticket creates and checks the tickets with which a proxy connects two processes. A broker
// issues two tickets for a link, one for each end, under a key that it shares with that one proxy;
// so the proxy decides without contacting any other daemon.
//
// The package has no sockets and no clock: the time is an argument. A Checker's only state is the
// memory of used tickets that have not expired.
package ticket

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"fmt"

	"github.com/isthmus-grid/isthmus/wire"
)

// Key is the key with which a broker signs tickets and a proxy checks them. The proxy creates it
// and sends it to its broker. Treat it as a password.
type Key [32]byte

// NewKey returns a key from the system's random source.
func NewKey() (k Key) {
	rand.Read(k[:]) // never fails (crypto/rand)
	return k
}

// ParseKey parses a key received over the control connection.
func ParseKey(b []byte) (Key, error) {
	if len(b) != len(Key{}) {
		return Key{}, fmt.Errorf("ticket key of %d bytes, want %d", len(b), len(Key{}))
	}
	return Key(b), nil
}

// String hides the key from logs.
func (Key) String() string { return "(ticket key)" }

// Issue returns the claims as a ticket: with the MAC that key gives them,
// HMAC-SHA256 over wire.Ticket.Signed.
func Issue(key Key, claims wire.Ticket) wire.Ticket {
	claims.MAC = mac(key, &claims)
	return claims
}

func mac(key Key, t *wire.Ticket) (sum [32]byte) {
	h := hmac.New(sha256.New, key[:])
	h.Write(t.Signed())
	h.Sum(sum[:0])
	return sum
}
