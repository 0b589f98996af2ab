package checkpoint

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// kind is the kind of a message.
type kind uint8

// The kinds of messages. Numbers are unsigned varints in their shortest form, but for the sum, which is 8 bytes, the lowest
// first; data is what remains.
const (
	kindPut   kind = iota + 1 // iteration length sum offset data: a piece of the sender's state, to its holder
	kindTaken                 // iteration offset: the holder has it up to there, or, 0, does not take it
	kindAsk                   // fetch task: what state do you hold?
	kindNone                  // fetch: none
	kindOffer                 // fetch iteration length sum: this one; also in place of Data, if the state of a Get has been replaced
	kindGet                   // fetch task iteration sum offset: send a piece of it
	kindData                  // fetch offset data
	kindHello                 // data: where the sender runs, its site and node, each after its length
)

// A message is what one process sends to another. The fields are those of its kind.
type message struct {
	kind      kind
	fetch     uint64 // the asker's number of a Fetch
	task      uint64
	iteration uint64
	length    uint64 // of the state, in bytes
	sum       uint64
	offset    uint64 // of the data in the state
	data      []byte // a part of the message that was parsed
}

var (
	errShort = errors.New("checkpoint: truncated")
	errLong  = errors.New("checkpoint: more bytes than the message has")
	errValue = errors.New("checkpoint: a value that no message has")
)

// fields returns the numbers of a message of m's kind, in their order, and whether data follows. The sum is not in a varint.
func (m *message) fields() (numbers []*uint64, hasData bool) {
	switch m.kind {
	case kindPut:
		return []*uint64{&m.iteration, &m.length, &m.sum, &m.offset}, true
	case kindTaken:
		return []*uint64{&m.iteration, &m.offset}, false
	case kindAsk:
		return []*uint64{&m.fetch, &m.task}, false
	case kindNone:
		return []*uint64{&m.fetch}, false
	case kindOffer:
		return []*uint64{&m.fetch, &m.iteration, &m.length, &m.sum}, false
	case kindGet:
		return []*uint64{&m.fetch, &m.task, &m.iteration, &m.sum, &m.offset}, false
	case kindData:
		return []*uint64{&m.fetch, &m.offset}, true
	case kindHello:
		return []*uint64{}, true
	}
	return nil, false
}

// append appends the encoding.
func (m message) append(b []byte) []byte {
	numbers, hasData := m.fields()
	b = append(b, byte(m.kind))
	for _, n := range numbers {
		if n == &m.sum {
			b = binary.LittleEndian.AppendUint64(b, *n)
		} else {
			b = binary.AppendUvarint(b, *n)
		}
	}
	if hasData {
		b = append(b, m.data...)
	}
	return b
}

// parse reads a message. What it accepts it would encode in the same way. The data stays in b.
func parse(b []byte) (m message, err error) {
	if len(b) == 0 {
		return message{}, errShort
	}
	m.kind, b = kind(b[0]), b[1:]
	numbers, hasData := m.fields()
	if numbers == nil {
		return message{}, fmt.Errorf("%w: kind %d", errValue, m.kind)
	}
	for _, n := range numbers {
		if b, err = parseNumber(n, n == &m.sum, b); err != nil {
			return message{}, err
		}
	}
	switch {
	case hasData:
		m.data = slices.Clip(b)
	case len(b) > 0:
		return message{}, errLong
	}
	return m, nil
}

// parseNumber reads one number, in 8 bytes or as a varint, and returns what follows.
func parseNumber(n *uint64, isFixed bool, b []byte) (after []byte, err error) {
	if isFixed {
		if len(b) < 8 {
			return nil, errShort
		}
		*n = binary.LittleEndian.Uint64(b)
		return b[8:], nil
	}
	v, size := binary.Uvarint(b)
	switch {
	case size == 0:
		return nil, errShort
	case size < 0 || size > 1 && b[size-1] == 0:
		return nil, fmt.Errorf("%w: a number that is too large, or not in its shortest form", errValue)
	}
	*n = v
	return b[size:], nil
}
