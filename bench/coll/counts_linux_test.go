package coll

import (
	"testing"

	"github.com/isthmus-grid/isthmus/collectives/operation"
	"github.com/isthmus-grid/isthmus/lab/wan"
)

// What is between sites counts, and neither what goes to public hosts nor from there.
func TestWide(t *testing.T) {
	s := &scenario{sites: 2}
	got := s.wide([]wan.Counter{
		{From: "s1", To: "s2", Messages: 3, Bytes: 100}, {From: "s2", To: "s1", Messages: 1, Bytes: 10},
		{From: "s1", To: "public/broker", Messages: 7, Bytes: 1000}, {From: "public/proxy", To: "s2", Messages: 7, Bytes: 1000},
	})
	if want := (crossing{4, 110}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestSeen(t *testing.T) {
	s := &scenario{sites: 2, ranks: 4}
	for _, tc := range []struct {
		got, all crossing
		met      any // nil: not judged
	}{
		{crossing{1, 8}, crossing{seenCalls, 2000}, nil},
		{crossing{1, 1 << 20}, crossing{400, seenCalls * (1<<20 + 50000)}, true},
		{crossing{1, 1 << 20}, crossing{400, seenCalls * (1<<20 - 50000)}, false},
		{crossing{1, 1 << 20}, crossing{400, 2 * seenCalls << 20}, false},
		{crossing{}, crossing{}, nil},
	} {
		rows := s.seen(figure{operation.Bcast, 8}, &series{name: nameOurs}, tc.got, tc.all)
		if met := rows[1].Met; rows[0].Met != nil || (met == nil) != (tc.met == nil) || met != nil && *met != tc.met {
			t.Errorf("%+v: %+v", tc, rows)
		}
		if want := float64(tc.all.messages) / seenCalls; rows[0].Value != want {
			t.Errorf("%g messages for each call, want %g", rows[0].Value, want)
		}
	}
}
