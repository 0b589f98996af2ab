package termination

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/isthmus-grid/isthmus/aiac/internal/register"
)

// errShort and errValue are the faults of a message's bytes.
var (
	errShort = errors.New("termination: truncated")
	errValue = errors.New("termination: a value that no message has")
)

// Append appends the encoding: the kind in one byte, and the fields as its line in the list of
// kinds has them, rounds as unsigned varints and residuals as big-endian IEEE 754 numbers.
func (m Message) Append(b []byte) []byte {
	b = m.View.Append(append(b, byte(m.Kind)))
	if m.Kind != News {
		b = binary.AppendUvarint(b, uint64(m.Round))
	}
	switch m.Kind {
	case Ready:
		ready := byte(0)
		if m.Ready {
			ready = 1
		}
		b = append(b, ready)
	case Part, Done:
		b = binary.BigEndian.AppendUint64(b, math.Float64bits(m.Residual))
	}
	if m.Kind == Done {
		b = m.Decided.Append(b)
	}
	return b
}

// Parse reads a message of a job of so many tasks, and returns what follows it in b: of a Block, the
// copy. What it accepts it would encode in the same way.
func Parse(b []byte, tasks int) (m Message, after []byte, err error) {
	if len(b) == 0 {
		return Message{}, nil, errShort
	}
	m.Kind = Kind(b[0])
	if m.Kind < News || m.Kind > Done {
		return Message{}, nil, fmt.Errorf("%w: kind %d", errValue, b[0])
	}
	if m.View, b, err = register.Parse(b[1:], tasks); err != nil {
		return Message{}, nil, fmt.Errorf("termination: %v: %w", m.Kind, err)
	}
	if m.Kind == News {
		return m, b, nil
	}
	if m.Round, b, err = parseRound(b); err != nil {
		return Message{}, nil, err
	}
	return parseFields(m, b, tasks)
}

// parseRound reads the number of a wave.
func parseRound(b []byte) (round uint32, after []byte, err error) {
	v, n := binary.Uvarint(b)
	switch {
	case n == 0:
		return 0, nil, errShort
	case n < 0 || n > 1 && b[n-1] == 0 || v < 1 || v > math.MaxUint32:
		return 0, nil, fmt.Errorf("%w: wave %d", errValue, v)
	}
	return uint32(v), b[n:], nil
}

// parseFields reads what follows the round.
func parseFields(m Message, b []byte, tasks int) (_ Message, after []byte, err error) {
	switch m.Kind {
	case Ready:
		switch {
		case len(b) == 0:
			return Message{}, nil, errShort
		case b[0] > 1:
			return Message{}, nil, fmt.Errorf("%w: ready %d", errValue, b[0])
		}
		m.Ready, b = b[0] == 1, b[1:]
	case Part, Done:
		if len(b) < 8 {
			return Message{}, nil, errShort
		}
		m.Residual, b = math.Float64frombits(binary.BigEndian.Uint64(b)), b[8:]
	}
	if m.Kind == Done {
		if m.Decided, b, err = register.Parse(b, tasks); err != nil {
			return Message{}, nil, fmt.Errorf("termination: done: %w", err)
		}
	}
	return m, b, nil
}
