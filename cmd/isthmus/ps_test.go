package main

import (
	"strings"
	"testing"
	"unicode/utf8"

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

// What a job's submitter chose cannot command a terminal, nor add a line to the table.
func TestJobsOfOthers(t *testing.T) {
	var table strings.Builder
	if err := jobsTable(&table, []submit.RunningJob{
		{ID: "1", State: "running\t", By: "a\x1b[2J\n2  running  root@b/n1", Argv: []string{"\x1b]0;t\x07", "\xff\u202e", strings.Repeat("é", 60)}},
	}); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(table.String(), "\n"); n != 2 || strings.ContainsAny(table.String(), "\t\x1b\x07\u202e") || !utf8.ValidString(table.String()) {
		t.Errorf("%d lines: %q", n, table.String())
	}
	for _, want := range []string{`a\x1b[2J\n2  running  root@b/n1`, `\x1b]0;t\a \xff\u202e é`} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("no %s in %s", want, table.String())
		}
	}
}
