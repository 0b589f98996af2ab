package main

import (
	"testing"

	"github.com/isthmus-grid/isthmus/launch/submit"
)

func TestLiveText(t *testing.T) {
	for want, live := range map[string][][]int{
		"-":                         nil,
		"6 of 3x2":                  {{0, 1}, {0, 1}, {0, 1}},
		"4 of 3x2; rank 1 has none": {{0, 1}, {}, {0, 1}},
		"2 of 5x2; rank 0 has 1; rank 1 has 0; rank 2 has none; 2 more ranks lack some": {{1}, {0}, nil, nil, nil},
	} {
		if got := liveText(submit.RunningJob{Ranks: len(live), Replicas: 2, Live: live}); got != want {
			t.Errorf("%v: %q, want %q", live, got, want)
		}
	}
}
