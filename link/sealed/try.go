package sealed

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
)

// This file writes without waiting. A record is sealed before it is known whether
// the carrier takes it, and cannot be sealed again: its number is used. So what
// the carrier leaves of one is kept, and goes before everything else; the caller
// hears that nothing was taken, and what it then writes again is passed over.

// trier is a connection that can be asked to take what it has room for.
type trier interface {
	TryWrite(p []byte) (int, error)
}

// maxTry is a record.
const maxTry = maxContent

// kept is what was sealed for a caller who thinks that it was not written.
type kept struct {
	record []byte // what the carrier has not taken of it
	data   []byte // what the caller is to write again
}

var errOther = errors.New("sealed: write: it does not begin with what the last TryWriteVec was given and did not take")

// try is write for what the carrier takes at once.
func (w *writer) try(bufs [][]byte) (int, error) {
	n := 0
	for _, b := range bufs {
		n += len(b)
	}
	c, ok := w.conn.(trier)
	if !ok || n == 0 || n > maxTry || !w.mu.TryLock() {
		return 0, nil
	}
	defer w.mu.Unlock()
	switch {
	case w.err != nil:
		return 0, w.err
	case len(w.kept.data) > 0:
		return w.tryAgain(c, &cursor{bufs: bufs}, n)
	case w.half.seq >= w.renew || w.asked.Load():
		return 0, nil // write changes the keys
	}
	room := getBuffer(smallBuffers)
	defer room.giveBack()
	record := w.half.appendRecord(room.bytes()[:0], typeApplication, &cursor{bufs: bufs}, n)
	switch took, err := c.TryWrite(record); {
	case err != nil:
		w.err = fmt.Errorf("sealed: write: %w", err)
		return 0, w.err
	case took < len(record):
		again := cursor{bufs: bufs}
		w.kept = kept{slices.Clone(record[took:]), again.appendTo(nil, n)}
		return 0, nil
	}
	return n, nil
}

// resumeAt checks that the next n bytes of from, or as many as are kept, are what is
// kept, and returns how many those are.
func (w *writer) resumeAt(from *cursor, n int) (int, error) {
	n = min(n, len(w.kept.data))
	if !bytes.HasPrefix(w.kept.data, from.appendTo(nil, n)) {
		w.err = errOther
		return 0, w.err
	}
	return n, nil
}

// tryAgain is try when something is kept.
func (w *writer) tryAgain(c trier, from *cursor, n int) (int, error) {
	n, err := w.resumeAt(from, n)
	if err != nil {
		return 0, err
	}
	if len(w.kept.record) > 0 {
		took, err := c.TryWrite(w.kept.record)
		if err != nil {
			w.err = fmt.Errorf("sealed: write: %w", err)
			return 0, w.err
		}
		if w.kept.record = w.kept.record[took:]; len(w.kept.record) > 0 {
			return 0, nil
		}
	}
	w.kept.data = w.kept.data[n:]
	return n, nil
}

// finish sends what is kept of a record, and passes over what it holds in the next
// left bytes of from. It returns how many bytes that were.
func (w *writer) finish(from *cursor, left int) (int, error) {
	if len(w.kept.data) == 0 {
		return 0, nil
	}
	n, err := w.resumeAt(from, left)
	if err != nil {
		return 0, err
	}
	if len(w.kept.record) > 0 {
		if _, err := w.conn.Write(w.kept.record); err != nil {
			w.err = fmt.Errorf("sealed: write: %w", err)
			return 0, w.err
		}
		w.kept.record = nil
	}
	w.kept.data = w.kept.data[n:]
	return n, nil
}
