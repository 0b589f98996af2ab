package runjob

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/launch/submit"
)

func TestEnvironmentOf(t *testing.T) {
	environ := []string{"HOME=/root", "ISTHMUS_RANK=3", "ISTHMUS_HELPER=/x", "ISTHMUS_JOB_KEY=secret", "ISTHMUS_REPORT=/r", "ISTHMUS_COPY=1", "ISTHMUS_COPIES=2", "ISTHMUS_REPLICA_TABLE=primary", "ISTHMUS_SEND_DETERMINISTIC=1", "ISTHMUS_PLACES=a/n1:4", "ISTHMUS_SPARES=1", "ISTHMUS_REPLACEMENTS=0", "ISTHMUS_PROCESS=9", "ISTHMUS_OUTPUT_MARKS=x", "ISTHMUS_DEBUG=1"}
	got, err := environmentOf(environ, []string{"HOME", "A=b=c"}, []string{"P=1"})
	if err != nil || fmt.Sprint(got) != "[P=1 ISTHMUS_DEBUG=1 HOME=/root A=b=c]" {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"", "=x", "NOT_SET"} {
		if _, err := environmentOf(environ, []string{bad}, nil); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func TestLimitsOf(t *testing.T) {
	got, err := limitsOf([]string{"nofile=99", "core=unlimited"})
	if err != nil || len(got) != 2 || got[0].Name != "nofile" || got[0].Value != 99 || got[1].Value != 1<<64-1 {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"", "nofile", "nofile=x", "files=9", "nofile=-1"} {
		if _, err := limitsOf([]string{bad}); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func TestJobName(t *testing.T) {
	for program, want := range map[string]string{
		"./My Program.sh": "my-program.sh", "hostname": "hostname", "/x/...": "job", "_é": "job", "a-very-long-name-of-a-program": "a-very-long-name-of-",
	} {
		if got := jobName(&submit.Job{Argv: []string{program}}); got != want {
			t.Errorf("%s: %s, want %s", program, got, want)
		}
	}
}

// Without --verbose only slow steps are reported, and not too often.
func TestNarrator(t *testing.T) {
	steps := []struct {
		at time.Duration
		p  submit.Progress
	}{
		{0, submit.Progress{Step: "listing"}},
		{0, submit.Progress{Step: "waiting", Have: 1, Need: 2, Who: "paris/n2", Left: 20 * time.Second}},
		{time.Second, submit.Progress{Step: "waiting", Have: 1, Need: 2, Who: "paris/n2", Left: 19 * time.Second}},
		{5 * time.Second, submit.Progress{Step: "waiting", Have: 1, Need: 2, Who: "paris/n2", Left: 15 * time.Second}},
		{5 * time.Second, submit.Progress{Step: "measuring", Have: 0, Need: 3}},
		{6 * time.Second, submit.Progress{Step: "measuring", Have: 1, Need: 3}},
		{8 * time.Second, submit.Progress{Step: "measuring", Have: 2, Need: 3}},
		{9 * time.Second, submit.Progress{Step: "staging", Need: 2, Missing: 1 << 21}},
		{10 * time.Second, submit.Progress{Step: "staging", Need: 2, Sent: 1 << 20, Missing: 1 << 21}},
		{12 * time.Second, submit.Progress{Step: "staging", Have: 1, Need: 2, Sent: 3 << 19, Missing: 1 << 21}},
		{12 * time.Second, submit.Progress{Step: "running", Need: 2}},
		{12 * time.Second, submit.Progress{Step: "broken", Who: "paris/n2", Left: 30 * time.Second}},
	}
	told := func(verbose bool) string {
		n := &narrator{verbose: verbose}
		var lines []string
		for _, s := range steps {
			if line := n.line(s.p, time.Unix(0, 0).Add(s.at)); line != "" {
				lines = append(lines, line)
			}
		}
		return strings.Join(lines, "\n")
	}
	want := "1/2 ranks, waiting for paris/n2: 20 s left\n1/2 ranks, waiting for paris/n2: 15 s left\n" +
		"measuring the bandwidth between sites: 2 of 3\n" +
		"staging: 1 of 2 hosts have all files; 1.5 MiB of 2.0 MiB sent\nparis/n2 cannot be reached; it is tried again for 30 s"
	if got := told(false); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := told(true); !strings.Contains(got, "asking which hosts") || !strings.Contains(got, "2 processes run") {
		t.Errorf("verbose:\n%s", got)
	}
}
