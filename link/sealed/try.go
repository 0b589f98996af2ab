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

// mostTry bounds what TryWrite takes, and so what is kept, in bytes.
const mostTry = 1 << 10

// kept is what was sealed for a caller who thinks that it was not written.
type kept struct {
	record []byte // what the carrier has not taken of it
	data   []byte // what the caller is to write again
}

var errOther = errors.New("sealed: write: it does not begin with what the last TryWrite was given and did not take")

// try is write for what the carrier takes at once.
func (w *writer) try(p []byte) (int, error) {
	c, ok := w.conn.(trier)
	if !ok || len(p) == 0 || len(p) > mostTry || !w.mu.TryLock() {
		return 0, nil
	}
	defer w.mu.Unlock()
	switch {
	case w.err != nil:
		return 0, w.err
	case len(w.kept.data) > 0:
		return w.tryAgain(c, p)
	case w.half.seq >= w.renew || w.asked.Load():
		return 0, nil // write changes the keys
	}
	room := borrow(smallBuffers)
	defer room.giveBack()
	bufs := [...][]byte{p}
	record := w.half.appendRecord(room.bytes()[:0], typeApplication, &cursor{bufs: bufs[:]}, len(p))
	n, err := c.TryWrite(record)
	switch {
	case err != nil:
		w.err = fmt.Errorf("sealed: write: %w", err)
		return 0, w.err
	case n < len(record):
		w.kept = kept{slices.Clone(record[n:]), slices.Clone(p)}
		return 0, nil
	}
	return len(p), nil
}

// tryAgain is try when something is kept.
func (w *writer) tryAgain(c trier, p []byte) (int, error) {
	p = p[:min(len(p), len(w.kept.data))]
	if !bytes.HasPrefix(w.kept.data, p) {
		w.err = errOther
		return 0, w.err
	}
	if len(w.kept.record) > 0 {
		n, err := c.TryWrite(w.kept.record)
		if err != nil {
			w.err = fmt.Errorf("sealed: write: %w", err)
			return 0, w.err
		}
		if w.kept.record = w.kept.record[n:]; len(w.kept.record) > 0 {
			return 0, nil
		}
	}
	w.kept.data = w.kept.data[len(p):]
	return len(p), nil
}

// finish sends what is kept of a record, and passes over what it holds in the next
// left bytes of from. It returns how many bytes that were.
func (w *writer) finish(from *cursor, left int) (int, error) {
	if len(w.kept.data) == 0 {
		return 0, nil
	}
	again := from.appendTo(nil, min(left, len(w.kept.data)))
	if !bytes.HasPrefix(w.kept.data, again) {
		w.err = errOther
		return 0, w.err
	}
	if len(w.kept.record) > 0 {
		if _, err := w.conn.Write(w.kept.record); err != nil {
			w.err = fmt.Errorf("sealed: write: %w", err)
			return 0, w.err
		}
		w.kept.record = nil
	}
	w.kept.data = w.kept.data[len(again):]
	return len(again), nil
}
