package sealed

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
)

// This file writes without blocking. A record is sealed before it is known whether the carrier
// takes it, and cannot be sealed again: its number is used. So what the carrier does not take of a
// record is kept, and sent before everything else; the caller is told that nothing was taken, and
// what it then writes again is skipped.

// trier is a connection that accepts as much as it has room for without blocking.
type trier interface {
	TryWrite(p []byte) (int, error)
}

// maxTry is the content of one record.
const maxTry = maxContent

// kept is a sealed record that the caller was told was not written.
type kept struct {
	record []byte // what the carrier has not taken of it
	data   []byte // what the caller must write again
}

var errOther = errors.New("sealed: write: it does not begin with what the last TryWriteVec was given and did not take")

// try writes bufs if the carrier takes them at once.
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

// resumeAt checks that the next n bytes of from, or as many as are kept, equal what is kept, and
// returns how many those are.
func (w *writer) resumeAt(from *cursor, n int) (int, error) {
	n = min(n, len(w.kept.data))
	if !bytes.HasPrefix(w.kept.data, from.appendTo(nil, n)) {
		w.err = errOther
		return 0, w.err
	}
	return n, nil
}

// tryAgain is try when a record is kept.
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

// finish sends the rest of a kept record, and skips its content in the next left bytes of from. It
// returns how many bytes that were.
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
