package jobagent

import (
	"encoding/binary"
	"fmt"
	"io"

	"google.golang.org/protobuf/proto"
)

// maxFrame bounds a message between helper and agent, in bytes: a submitter's Start, which gRPC
// bounds by 4 MiB, and its envelope.
const maxFrame = 5 << 20

// writeFrame writes a message after its length, in one Write.
func writeFrame(w io.Writer, m proto.Message) error {
	b, err := proto.MarshalOptions{}.MarshalAppend(make([]byte, 4, 64), m)
	if err != nil {
		return err
	}
	if len(b)-4 > maxFrame {
		return fmt.Errorf("jobagent: a message of %d bytes; at most %d", len(b)-4, maxFrame)
	}
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	_, err = w.Write(b)
	return err
}

// readFrame reads what writeFrame wrote. It allocates at most twice what has arrived. The end of r
// before a message is io.EOF, within one io.ErrUnexpectedEOF.
func readFrame(r io.Reader, m proto.Message) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxFrame {
		return fmt.Errorf("jobagent: a message of %d bytes; at most %d", n, maxFrame)
	}
	b, err := io.ReadAll(io.LimitReader(r, int64(n)))
	if err != nil {
		return err
	}
	if len(b) < int(n) {
		return io.ErrUnexpectedEOF
	}
	if err := proto.Unmarshal(b, m); err != nil {
		return fmt.Errorf("jobagent: %w", err)
	}
	return nil
}
