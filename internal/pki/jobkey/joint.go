package jobkey

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
)

// Joint derives the key of a further job from k, which its holders agree on through fresh, the
// random bytes of both ends. Knowledge of fresh alone reveals nothing about the key.
func (k Key) Joint(fresh []byte) Key {
	return Key{Name: k.Name, secret: [32]byte(k.derive("isthmus v1 joint job " + string(fresh)))}
}

// MaxSealed is the maximum size of Seal's result, in bytes.
const MaxSealed = 12 + 63 + 1 + 43 + 16

// Seal encrypts another job's key for the processes of k's job (AES-256-GCM), for a channel that
// may be overheard.
func (k Key) Seal(other Key) []byte {
	aead := k.aead()
	nonce := make([]byte, aead.NonceSize(), MaxSealed)
	rand.Read(nonce) // never fails (crypto/rand)
	return aead.Seal(nonce, nonce, []byte(other.String()), nil)
}

// Open reverses Seal. It fails for data that no holder of k has sealed.
func (k Key) Open(sealed []byte) (Key, error) {
	aead := k.aead()
	n := aead.NonceSize()
	if len(sealed) < n {
		return Key{}, errors.New("job key: what was sealed is cut")
	}
	text, err := aead.Open(nil, sealed[:n], sealed[n:], nil)
	if err != nil {
		return Key{}, fmt.Errorf("job key: what was sealed is not of job %s, or was changed", k.Name)
	}
	return Parse(string(text))
}

func (k Key) aead() cipher.AEAD {
	block, err := aes.NewCipher(k.derive("isthmus v1 key sealing"))
	if err == nil {
		var aead cipher.AEAD
		if aead, err = cipher.NewGCM(block); err == nil {
			return aead
		}
	}
	panic(err) // only for lengths that do not occur here
}
