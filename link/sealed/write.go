package sealed

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// renewAfter is how many records are sealed under one key. RFC 8446, section 5.5 allows 2^24.5
	// full ones with AES-GCM.
	renewAfter = 1 << 23
	// reserve is the room in a buffer for a KeyUpdate before the data.
	reserve = len(keyUpdate) + overhead

	// The first firstBytes of a connection are sent in records of at most firstContent bytes, which
	// fit into one packet of usual size. The peer can open a record only when it has all of it, and
	// a full one is more than the first flight of a TCP connection holds (10 segments, RFC 6928):
	// it would arrive a round trip later than its first part.
	firstContent = 1200
	firstBytes   = 64 << 10
)

// writer seals and sends. Writes from several goroutines do not mix.
type writer struct {
	mu    sync.Mutex
	half  half
	conn  net.Conn
	err   error       // why nothing can be written any more
	renew uint64      // renewAfter, less in tests
	first int         // how much of firstBytes has been sealed
	asked atomic.Bool // the peer requests that this end change keys
	kept  kept
}

// write sends bufs as application data, in as few writes as the buffer allows. It returns how many
// of their bytes were sent in complete writes.
func (w *writer) write(bufs [][]byte) (sent int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return 0, w.err
	}
	left := 0
	for _, b := range bufs {
		left += len(b)
	}
	if left == 0 {
		return 0, nil
	}
	pool := smallBuffers
	if left > maxContent {
		pool = largeBuffers
	}
	room := getBuffer(pool)
	defer room.giveBack()
	from := cursor{bufs: bufs}
	if sent, err = w.finish(&from, left); err != nil {
		return 0, err
	}
	for left -= sent; left > 0; {
		out, n, err := w.seal(room.bytes()[:0], &from, left)
		if err == nil {
			_, err = w.conn.Write(out)
		}
		if err != nil {
			w.err = fmt.Errorf("sealed: write: %w", err)
			return sent, w.err
		}
		sent, left = sent+n, left-n
	}
	return sent, nil
}

// seal fills out with records, up to its capacity, from the next left bytes of from. It returns how
// many of them it sealed.
func (w *writer) seal(out []byte, from *cursor, left int) ([]byte, int, error) {
	taken := 0
	for left > taken {
		n := min(left-taken, w.content())
		if len(out)+reserve+n+overhead > cap(out) {
			break
		}
		var err error
		if out, err = w.renewKeys(out); err != nil {
			return out, taken, err
		}
		out = w.half.appendRecord(out, typeApplication, from, n)
		taken += n
		w.first = min(w.first+n, firstBytes)
	}
	return out, taken, nil
}

// content returns the maximum content of the next record, in bytes.
func (w *writer) content() int {
	if w.first < firstBytes {
		return firstContent
	}
	return maxContent
}

// renewKeys appends a KeyUpdate to out, and switches to the next keys, when the current keys have
// sealed enough or the peer requests it.
func (w *writer) renewKeys(out []byte) ([]byte, error) {
	if w.half.seq < w.renew && !w.asked.Load() {
		return out, nil
	}
	w.asked.Store(false)
	out = w.half.appendRecord(out, typeHandshake, &cursor{bufs: [][]byte{keyUpdate[:]}}, len(keyUpdate))
	return out, w.half.update()
}

// sendAlert sends an alert, after which nothing can be written.
func (w *writer) sendAlert(a alert) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	last, err := w.finalRecord(a)
	if err == nil {
		_, err = w.conn.Write(last)
	}
	return err
}

// closeWith sends an alert if that is possible without blocking, or within closeWait over a carrier
// without TryWrite.
func (w *writer) closeWith(a alert) {
	if !w.mu.TryLock() {
		return
	}
	defer w.mu.Unlock()
	last, err := w.finalRecord(a)
	if err != nil {
		return
	}
	w.conn.SetWriteDeadline(time.Now().Add(closeWait)) // replaces a deadline that has passed
	if c, ok := w.conn.(trier); ok {
		c.TryWrite(last)
	} else {
		w.conn.Write(last)
	}
}

// finalRecord returns the last record to send.
func (w *writer) finalRecord(a alert) ([]byte, error) {
	if w.err != nil {
		return nil, w.err
	}
	w.err = fmt.Errorf("sealed: write after the goodbye: %w", net.ErrClosed)
	return w.half.appendAlert(w.kept.record, a), nil
}

func (h *half) appendAlert(out []byte, a alert) []byte {
	level := byte(2) // fatal
	if a == alertCloseNotify {
		level = 1
	}
	return h.appendRecord(out, typeAlert, &cursor{bufs: [][]byte{{level, byte(a)}}}, 2)
}
