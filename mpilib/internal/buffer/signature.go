package buffer

import (
	"encoding/binary"
	"fmt"

	"github.com/isthmus-grid/isthmus/mpilib/internal/datatype"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
)

// The layout of a signature in a message: a mark, the number of elements, the hashes of their names and forms.
const (
	signatureMark = "types 2:"
	SignatureSize = len(signatureMark) + 8 + 8 + 8
)

// typed returns p's type and the number of its elements. If the padding of a Go struct is
// transferred too, the elements are just bytes.
func (p *Part) typed() (*datatype.Type, int64, error) {
	if p.Layout != nil {
		return p.Layout, p.Count, nil
	}
	if p.Elem == nil {
		return datatype.Byte, 0, nil
	}
	t, err := datatype.Of(p.Elem)
	if err == nil && t.Size() != int64(p.Elem.Size()) {
		return datatype.Byte, int64(p.Size), nil
	}
	return t, p.Count, err
}

// Signed returns p's message with its signature in front.
func (p *Part) Signed() ([]byte, error) {
	s, err := p.Signature()
	if err != nil {
		return nil, err
	}
	b := make([]byte, SignatureSize+p.Size)
	s.put(b)
	p.Gather(b[SignatureSize:], 0)
	return b, nil
}

// Signature is datatype.Signature as transferred.
type Signature datatype.Signature

// Signature returns that of p. Elements of Go's types have no names.
func (p *Part) Signature() (Signature, error) {
	t, n, err := p.typed()
	if err != nil {
		return Signature{}, err
	}
	s, err := t.Signature(n)
	if p.Layout == nil {
		s = s.Nameless()
	}
	return Signature(s), err
}

func (s Signature) put(b []byte) {
	copy(b, signatureMark)
	binary.LittleEndian.PutUint64(b[len(signatureMark):], uint64(s.Elements))
	binary.LittleEndian.PutUint64(b[len(signatureMark)+8:], s.Hash)
	binary.LittleEndian.PutUint64(b[len(signatureMark)+16:], s.Form)
}

// Accepts returns why a message with the signature at the front of b does not match p, or nil.
func (p *Part) Accepts(b []byte) error {
	if string(b[:len(signatureMark)]) != signatureMark {
		return fmt.Errorf("%w, maybe: the message has no signature; have all processes check types, or none", mpi.ErrSignature)
	}
	sent := datatype.Signature{
		Elements: int64(binary.LittleEndian.Uint64(b[len(signatureMark):])),
		Hash:     binary.LittleEndian.Uint64(b[len(signatureMark)+8:]),
		Form:     binary.LittleEndian.Uint64(b[len(signatureMark)+16:]),
	}
	return p.Matches(sent)
}

// Matches returns why a message of the sent type does not match p, or nil.
func (p *Part) Matches(sent datatype.Signature) error {
	t, n, err := p.typed()
	if err != nil {
		return err
	}
	if p.Layout == nil {
		sent = sent.Nameless()
	}
	if ok, err := t.Accepts(n, sent); err != nil || ok {
		return err
	}
	return fmt.Errorf("%w: %d basic elements were sent, and are not the first of the %d times %v that are received", mpi.ErrSignature, sent.Elements, n, t)
}
