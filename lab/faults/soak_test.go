package faults

import (
	"strings"
	"testing"
)

func TestSoakVerdict(t *testing.T) {
	s := Soak{HashOK: true, Moves: make([]Move, maxMoves)}
	if s.judge(); !s.OK {
		t.Errorf("faults %q", s.Faults)
	}
	s.Moves = append(s.Moves, Move{12, "relay through p1"})
	if s.judge(); s.OK || !strings.Contains(s.Faults[0], "3 times") {
		t.Errorf("faults %q", s.Faults)
	}
	var text strings.Builder
	if err := s.print(&text, false); err != nil || !strings.Contains(text.String(), "after 12.0 s: relay through p1") {
		t.Errorf("%q, %v", text.String(), err)
	}
	s = Soak{}
	if s.judge(); s.OK {
		t.Error("wrong content is good")
	}
}
