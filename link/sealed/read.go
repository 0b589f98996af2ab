package sealed

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// reader receives and opens records. Reads from several goroutines take turns.
//
//	buf:  | opened, unread: plain | sealed: at..end | free |
type reader struct {
	mu      sync.Mutex
	half    half
	conn    net.Conn
	err     error // why nothing can be read any more; io.EOF after the peer's close_notify
	buf     buffer
	at, end int    // part of buf that was received and is not opened
	plain   []byte // opened in place because it does not fit into the caller's buffer; lies before at
	useless int    // consecutive records without data
	modest  int    // consecutive reads into an empty large buffer that a small one could hold

	asked    *atomic.Bool  // set when the peer requests that this end change keys
	farewell atomic.Uint32 // the alert to send to the peer at the end
}

// modestReads is after how many such reads the large buffer is returned.
const modestReads = 32

// read fills the buffers of bufs in order. It blocks only for the first bytes, and returns what is
// there without blocking again.
func (r *reader) read(bufs [][]byte) (n int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range bufs {
		for len(b) > 0 {
			k, err := r.readSome(b, n == 0)
			n += k
			if err != nil || k == 0 {
				if n > 0 {
					return n, nil // the error is kept and returned next time
				}
				return 0, err
			}
			b = b[k:]
		}
	}
	return n, nil
}

// readSome reads at least a byte into b, which is not empty; it returns 0 and no error only if it
// would have to block and wait is false.
func (r *reader) readSome(b []byte, wait bool) (int, error) {
	for len(r.plain) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		record, err := r.buffered()
		switch {
		case err != nil:
			return 0, r.fail(err)
		case record != nil:
			if n, err := r.open(record, b); n > 0 || err != nil {
				return n, r.fail(err)
			}
		case !wait:
			return 0, nil
		default:
			if err := r.fill(); err != nil {
				return 0, err
			}
		}
	}
	n := copy(b, r.plain)
	r.plain = r.plain[n:]
	return n, nil
}

// buffered returns the next record and moves past it, if all of it has arrived. The slice is valid
// until the next fill.
func (r *reader) buffered() ([]byte, error) {
	got := r.buf.bytes()[r.at:r.end]
	if len(got) < headerLen {
		return nil, nil
	}
	n := int(binary.BigEndian.Uint16(got[3:]))
	switch {
	case contentType(got[0]) != typeApplication:
		return nil, errUnsealed
	case n > maxSealed:
		return nil, errOverflow
	case n < 1+tagLen:
		return nil, errEmpty
	case len(got) < headerLen+n:
		return nil, nil
	}
	r.at += headerLen + n
	return got[:headerLen+n], nil
}

// open opens a record, into b if it fits. It returns how many bytes are in b; otherwise the data,
// if any, is in plain.
func (r *reader) open(record, b []byte) (int, error) {
	content, t, direct, err := r.half.open(record, b)
	if err != nil {
		return 0, err
	}
	if t == typeApplication && len(content) > 0 {
		r.useless = 0
		if direct {
			return len(content), nil
		}
		r.plain = content
		return 0, nil
	}
	if r.useless++; r.useless > maxUseless {
		return 0, errUseless
	}
	switch t {
	case typeApplication:
		return 0, nil
	case typeHandshake:
		return 0, r.keyUpdate(content)
	case typeAlert:
		return 0, alertError(content)
	}
	return 0, errUnexpected
}

// keyUpdate switches to the peer's next keys.
func (r *reader) keyUpdate(message []byte) error {
	last := len(keyUpdate) - 1
	if len(message) != len(keyUpdate) || !bytes.Equal(message[:last], keyUpdate[:last]) || message[last] > 1 {
		return errMessage
	}
	if message[last] == 1 {
		r.asked.Store(true)
	}
	return r.half.update()
}

// alertError returns the reader's error for an alert.
func alertError(content []byte) error {
	if len(content) != 2 {
		return errAlertForm
	}
	switch a := alert(content[1]); {
	case a == alertCloseNotify:
		return io.EOF
	case a == alertUserCanceled: // a close_notify follows (RFC 8446, section 6.1)
		return nil
	case refusesCertificate(a):
		return refusedFor(a)
	default:
		return fmt.Errorf("the peer gave up: %w", tls.AlertError(a))
	}
}

// fill reads once from the carrier. Its error is kept, except for a deadline's.
func (r *reader) fill() error {
	r.makeRoom()
	free := r.buf.bytes()[r.end:]
	empty := r.at == r.end
	n, err := r.conn.Read(free)
	r.end += n
	if n > 0 {
		r.resize(n, len(free), empty)
		return nil // an error, if any, will be returned again
	}
	var timeout net.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.EOF):
		return r.fail(ErrTruncated)
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("sealed: read: %w", err)
	}
	return r.fail(err)
}

// makeRoom moves the rest of a record to the front when little room is left after it. plain is
// empty.
func (r *reader) makeRoom() {
	if r.buf == (buffer{}) {
		r.buf = getBuffer(smallBuffers)
	}
	b := r.buf.bytes()
	switch {
	case r.at == r.end:
		r.at, r.end = 0, 0
	case len(b)-r.at < maxRecord || len(b)-r.end < len(b)/4:
		r.end = copy(b, b[r.at:r.end])
		r.at = 0
	}
}

// resize switches to a large buffer when a small one was filled, and to a small one when a large
// one was not needed for a while.
func (r *reader) resize(n, free int, empty bool) {
	switch {
	case r.buf.pool == smallBuffers:
		if n == free {
			r.exchange(largeBuffers)
		}
	case n <= smallSize && empty:
		if r.modest++; r.modest == modestReads && r.end-r.at <= smallSize {
			r.exchange(smallBuffers)
		}
	default:
		r.modest = 0
	}
}

func (r *reader) exchange(pool *sync.Pool) {
	next := getBuffer(pool)
	r.end = copy(next.bytes(), r.buf.bytes()[r.at:r.end])
	r.at, r.modest = 0, 0
	r.buf.giveBack()
	r.buf = next
}

// fail keeps err, if not nil, for all later reads.
func (r *reader) fail(err error) error {
	if err == nil || r.err != nil {
		return r.err
	}
	if err != io.EOF {
		err = fmt.Errorf("sealed: read: %w", err)
	}
	var broken *fault
	if errors.As(err, &broken) {
		r.farewell.Store(uint32(broken.tell))
	}
	r.err = err
	r.buf.giveBack() // plain is empty, or nothing would have been opened
	r.at, r.end = 0, 0
	return err
}
