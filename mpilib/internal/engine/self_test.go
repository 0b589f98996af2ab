package engine

import (
	"bytes"
	"context"
	"errors"
	"testing"
)

// A send to self that is given up after a matched probe has taken its message
// gives its buffer back; the message stays what it was.
func TestSelfGivenUpAfterProbe(t *testing.T) {
	e := New(Config{Size: 1})
	defer e.Close()
	buf := bytes.Repeat([]byte{1}, 100<<10)
	var s, r Request
	e.Isend(&s, everyone{}, 0, 0, 5, buf, Standard, true)
	m, found, err := e.Iprobe(everyone{}, 0, AnySource, AnyTag, true)
	if !found || err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Wait(gone); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	clear(buf)
	got := make([]byte, len(buf))
	m.Irecv(&r, everyone{}, got)
	if _, err := wait(t, &r); err != nil || !bytes.Equal(got, bytes.Repeat([]byte{1}, len(buf))) {
		t.Error(err, got[0])
	}
}
