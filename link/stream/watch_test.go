package stream

import (
	"testing"
	"time"
)

// TestJudge: the peer is asked only when necessary, and a path counts as dead only when it had time
// to answer.
func TestJudge(t *testing.T) {
	const none = -1
	for _, tc := range []struct {
		silence, asked, rtt, idle time.Duration
		load                      bool
		want                      sign
	}{
		{0, none, 0, AskIdle, true, fine},
		{140 * time.Millisecond, none, 0, AskIdle, true, fine},
		{150 * time.Millisecond, none, 0, AskIdle, true, ask},
		{200 * time.Millisecond, none, 0, AskIdle, false, fine},
		{15 * time.Second, none, 0, AskIdle, false, ask},
		{1400 * time.Millisecond, none, 0, 1500 * time.Millisecond, false, fine},
		{1500 * time.Millisecond, none, 0, 1500 * time.Millisecond, false, ask},
		{300 * time.Millisecond, 50 * time.Millisecond, 0, AskIdle, true, fine},
		{400 * time.Millisecond, 190 * time.Millisecond, 0, AskIdle, true, fine},
		{400 * time.Millisecond, 200 * time.Millisecond, 0, AskIdle, true, doubtful},
		{400 * time.Millisecond, 200 * time.Millisecond, 100 * time.Millisecond, AskIdle, true, fine}, // an answer cannot be here yet
		{500 * time.Millisecond, 300 * time.Millisecond, 100 * time.Millisecond, AskIdle, true, doubtful},
		{time.Second, 590 * time.Millisecond, 400 * time.Millisecond, AskIdle, true, fine},
		{time.Second, 600 * time.Millisecond, 400 * time.Millisecond, AskIdle, true, late},
		{time.Second, 790 * time.Millisecond, 400 * time.Millisecond, AskIdle, true, late},
		{time.Second, 800 * time.Millisecond, 400 * time.Millisecond, AskIdle, true, doubtful},
		{100 * time.Millisecond, 250 * time.Millisecond, 0, AskIdle, true, fine}, // something arrived since
		{3 * time.Second, 2 * time.Second, 0, AskIdle, true, gone},
		{3 * time.Second, 1990 * time.Millisecond, time.Second, AskIdle, true, late},
		{16 * time.Second, 2 * time.Second, 0, AskIdle, false, gone},
	} {
		if got := judge(tc.silence, tc.asked, tc.rtt, tc.rtt, tc.idle, tc.load); got != tc.want {
			t.Errorf("%+v: %v", tc, got)
		}
	}
}

// TestNextFrame: frames grow where writes are fast and shrink where they are slow.
func TestNextFrame(t *testing.T) {
	for _, tc := range []struct {
		size, n int
		took    time.Duration
		want    int
	}{
		{minFrame, minFrame, time.Millisecond, 2 * minFrame},
		{minFrame, minFrame, 100 * time.Millisecond, minFrame},
		{minFrame, minFrame, time.Second, minFrame},
		{4 * minFrame, minFrame, time.Millisecond, 4 * minFrame}, // it was not full
		{4 * minFrame, 4 * minFrame, 201 * time.Millisecond, 2 * minFrame},
		{maxFrame, maxFrame + 40, time.Millisecond, maxFrame},
	} {
		if got := nextFrame(tc.size, tc.n, tc.took); got != tc.want {
			t.Errorf("%+v: %d", tc, got)
		}
	}
}
