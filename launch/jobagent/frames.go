package jobagent

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/proto"

	"github.com/isthmus-grid/isthmus/internal/limit/decode"
)

// ErrMessage is the error of a message that cannot be encoded, decoded or carried. Whoever sends it again
// gets it again.
var ErrMessage = errors.New("jobagent: a message that cannot be carried")

// writeFrame writes a message after its length, in one Write.
func writeFrame(w io.Writer, m proto.Message) error {
	b, err := proto.MarshalOptions{}.MarshalAppend(make([]byte, 4, 64), m)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrMessage, err)
	}
	if most, _ := decode.Bounds(m); len(b)-4 > most {
		return fmt.Errorf("%w: it has %d bytes; at most %d", ErrMessage, len(b)-4, most)
	}
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	_, err = w.Write(b)
	return err
}

// readFrame reads what writeFrame wrote, within the bounds of m's type: the other end may be a job's,
// or a job that has taken its place. It allocates at most twice what has arrived. The end of r before
// a message is io.EOF, within one io.ErrUnexpectedEOF.
func readFrame(r io.Reader, m proto.Message) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(head[:])
	if most, _ := decode.Bounds(m); int64(n) > int64(most) {
		return fmt.Errorf("%w: it has %d bytes; at most %d", ErrMessage, n, most)
	}
	b, err := io.ReadAll(io.LimitReader(r, int64(n)))
	if err != nil {
		return err
	}
	if len(b) < int(n) {
		return io.ErrUnexpectedEOF
	}
	if err := decode.Unmarshal(b, m); err != nil {
		return fmt.Errorf("%w: %w", ErrMessage, err)
	}
	return nil
}
