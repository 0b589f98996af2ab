package sealed

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"hash"

	"golang.org/x/crypto/chacha20poly1305"
)

// suite holds the components of a TLS 1.3 cipher suite (RFC 8446, appendix B.4).
type suite struct {
	hash   func() hash.Hash
	keyLen int
	aead   func(key []byte) (cipher.AEAD, error)
}

func suiteOf(id uint16) (*suite, error) {
	switch id {
	case tls.TLS_AES_128_GCM_SHA256:
		return &suite{sha256.New, 16, newGCM}, nil
	case tls.TLS_AES_256_GCM_SHA384:
		return &suite{sha512.New384, 32, newGCM}, nil
	case tls.TLS_CHACHA20_POLY1305_SHA256:
		return &suite{sha256.New, chacha20poly1305.KeySize, chacha20poly1305.New}, nil
	}
	return nil, fmt.Errorf("cipher suite %s is not one of TLS 1.3 that are known here", tls.CipherSuiteName(id))
}

func newGCM(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// expandLabel is HKDF-Expand-Label of RFC 8446, section 7.1, with an empty
// context.
func (s *suite) expandLabel(secret []byte, label string, n int) ([]byte, error) {
	const prefix = "tls13 "
	info := binary.BigEndian.AppendUint16(nil, uint16(n))
	info = append(info, byte(len(prefix)+len(label)))
	info = append(info, prefix+label...)
	info = append(info, 0)
	return hkdf.Expand(s.hash, secret, string(info), n)
}

// half holds the keys of one direction, and the number of its next record. No number is used twice
// under one key: it only ever grows, even after a failed write, and new keys start again at zero.
type half struct {
	suite  *suite
	secret []byte
	aead   cipher.AEAD
	iv     [12]byte
	seq    uint64
	nonce  [12]byte // of the current record
}

// init sets the keys that follow from a traffic secret (RFC 8446, section 7.3).
func (h *half) init(s *suite, secret []byte) error {
	key, err := s.expandLabel(secret, "key", s.keyLen)
	if err != nil {
		return fmt.Errorf("traffic key: %w", err)
	}
	iv, err := s.expandLabel(secret, "iv", len(h.iv))
	if err != nil {
		return fmt.Errorf("traffic iv: %w", err)
	}
	aead, err := s.aead(key)
	if err != nil {
		return fmt.Errorf("traffic key: %w", err)
	}
	*h = half{suite: s, secret: secret, aead: aead, iv: [12]byte(iv)}
	return nil
}

// update switches to the direction's next keys (RFC 8446, section 7.2).
func (h *half) update() error {
	next, err := h.suite.expandLabel(h.secret, "traffic upd", h.suite.hash().Size())
	if err != nil {
		return fmt.Errorf("next traffic secret: %w", err)
	}
	return h.init(h.suite, next)
}

// next returns the nonce of the next record (RFC 8446, section 5.3) and counts
// it. The slice is valid until the next call.
func (h *half) next() []byte {
	h.nonce = h.iv
	binary.BigEndian.PutUint64(h.nonce[4:], binary.BigEndian.Uint64(h.iv[4:])^h.seq)
	h.seq++
	return h.nonce[:]
}
