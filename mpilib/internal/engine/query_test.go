package engine

import (
	"testing"
)

type everybody struct{}

func (everybody) Member(int) bool       { return true }
func (everybody) Whole() bool           { return false }
func (everybody) Acknowledged(int) bool { return false }

func TestQueries(t *testing.T) {
	e := New(Config{Rank: 0, Size: 1})
	defer e.Close()
	var never, recv, send, early Request
	if never.Unmatched() {
		t.Error("a request that was never started waits")
	}
	e.Irecv(&recv, everybody{}, 8, 0, 5, make([]byte, 4))
	if !recv.Unmatched() {
		t.Error("a posted receive does not wait for a message")
	}
	e.Isend(&send, everybody{}, 8, 0, 5, []byte("four"), Synchronous, false)
	if recv.Unmatched() || send.Unmatched() {
		t.Error("they still wait after they met")
	}
	if kept := e.UnexpectedMessages(); len(kept) != 0 {
		t.Errorf("%+v", kept)
	}
	e.Isend(&early, everybody{}, 12, 0, 7, []byte("first"), Synchronous, false)
	if !early.Unmatched() {
		t.Error("a synchronous send without a receive does not wait for one")
	}
	if kept := e.UnexpectedMessages(); len(kept) != 1 || kept[0] != (UnexpectedMessage{Context: 12, Source: 0, Tag: 7, Bytes: 5}) {
		t.Errorf("%+v", kept)
	}
}
