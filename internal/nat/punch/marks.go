package punch

import (
	"encoding/binary"
	"io"
	"time"

	"github.com/quic-go/quic-go"
)

// markLen is the length of a mark, which says that its sender has read all of a stream, or reads no
// more of it. It is a unidirectional stream that contains only the number of the stream that it refers
// to, the most significant byte first.
//
// No end receives a mark of a stream that it does not know yet: the end that opened a stream sends
// one only after the other has accepted the stream. So a mark of an unknown stream refers to one
// that is over here, and is dropped.
const markLen = 8

// markPatience bounds the wait for the rest of a mark whose stream has begun.
const markPatience = 3 * time.Second

// sendMark sends the mark of a stream. If that fails, because the tunnel is gone or the peer
// accepts no more marks, the peer's Close waits longer.
func (t *Tunnel) sendMark(id quic.StreamID) {
	s, err := t.quic.OpenUniStream()
	if err != nil {
		return
	}
	s.Write(binary.BigEndian.AppendUint64(nil, uint64(id)))
	s.Close()
}

// serveMarks processes the peer's marks until the tunnel is gone.
func (t *Tunnel) serveMarks() {
	for {
		s, err := t.quic.AcceptUniStream(t.quic.Context())
		if err != nil {
			return
		}
		var mark [markLen]byte
		s.SetReadDeadline(time.Now().Add(markPatience))
		_, err = io.ReadFull(s, mark[:])
		s.CancelRead(codeClosed) // so that the peer may open another one in its place
		if err == nil {
			t.marked(quic.StreamID(binary.BigEndian.Uint64(mark[:])))
		}
	}
}

// marked records that the peer reads no more of a stream.
func (t *Tunnel) marked(id quic.StreamID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if ch := t.unmarked[id]; ch != nil {
		close(ch)
		delete(t.unmarked, id)
	}
}

// forget removes a stream that no longer waits for a mark.
func (t *Tunnel) forget(id quic.StreamID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.unmarked, id)
}
