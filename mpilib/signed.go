package mpilib

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/isthmus-grid/isthmus/mpilib/internal/datatype"
)

// ErrSignature is that of a receive whose type does not match that of its message
// (MPI-4.1, section 3.3.1). It is noticed with WithTypeCheck only.
var ErrSignature = errors.New("the types of send and receive differ")

// WithTypeCheck has point-to-point messages carry the signature of their type, and
// receives compare it with theirs, as ISTHMUS_DEBUG=types does. Every process must
// do the same. Each message is then copied at both ends.
func WithTypeCheck() Option { return func(cfg *config) { cfg.signs = true } }

// What a signature is in a message: a mark, the number of elements, their hash.
const (
	signatureMark = "types 1:"
	signatureSize = len(signatureMark) + 8 + 8
)

// signs reports whether c's messages begin with a signature.
func (c *Comm) signs() bool { return c.world.config.signs }

// head returns how many bytes of each message are not the program's.
func (c *Comm) head() int {
	if c.signs() {
		return signatureSize
	}
	return 0
}

// typed returns p's type, and how many elements of it. Where the padding of a Go
// struct travels too they are nothing but bytes.
func (p *Part) typed() (*datatype.Type, int64, error) {
	if p.layout != nil {
		return p.layout, p.count, nil
	}
	if p.elem == nil {
		return datatype.Byte, 0, nil
	}
	t, err := datatype.Of(p.elem)
	if err == nil && t.Size() != int64(p.elem.Size()) {
		return datatype.Byte, int64(p.size), nil
	}
	return t, p.count, err
}

// signed returns p's message behind its signature.
func (p *Part) signed() ([]byte, error) {
	s, err := p.signature()
	if err != nil {
		return nil, err
	}
	b := make([]byte, signatureSize+p.size)
	s.put(b)
	p.gather(b[signatureSize:], 0)
	return b, nil
}

// signature is datatype.Signature as it travels.
type signature datatype.Signature

func (p *Part) signature() (signature, error) {
	t, n, err := p.typed()
	if err != nil {
		return signature{}, err
	}
	s, err := t.Signature(n)
	return signature(s), err
}

func (s signature) put(b []byte) {
	copy(b, signatureMark)
	binary.LittleEndian.PutUint64(b[len(signatureMark):], uint64(s.Elements))
	binary.LittleEndian.PutUint64(b[len(signatureMark)+8:], s.Hash)
}

// accepts says why a message with the signature at the front of b is none for p.
func (p *Part) accepts(b []byte) error {
	if string(b[:len(signatureMark)]) != signatureMark {
		return fmt.Errorf("%w, maybe: the message has no signature; have all processes check types, or none", ErrSignature)
	}
	sent := datatype.Signature{
		Elements: int64(binary.LittleEndian.Uint64(b[len(signatureMark):])),
		Hash:     binary.LittleEndian.Uint64(b[len(signatureMark)+8:]),
	}
	return p.matches(sent)
}

func (p *Part) matches(sent datatype.Signature) error {
	t, n, err := p.typed()
	if err != nil {
		return err
	}
	if ok, err := t.Accepts(n, sent); err != nil || ok {
		return err
	}
	return fmt.Errorf("%w: %d basic elements were sent, and are not the first of the %d times %v that are received", ErrSignature, sent.Elements, n, t)
}
