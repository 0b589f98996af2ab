package stream

import (
	"testing"
	"time"
)

// TestJudge: the peer is asked only when it must be, and a path counts as dead
// only when it had time to answer.
func TestJudge(t *testing.T) {
	const none = -1
	for _, tc := range []struct {
		silence, asked, rtt time.Duration
		load                bool
		want                sign
	}{
		{0, none, 0, true, fine},
		{190 * time.Millisecond, none, 0, true, fine},
		{200 * time.Millisecond, none, 0, true, ask},
		{200 * time.Millisecond, none, 0, false, fine},
		{15 * time.Second, none, 0, false, ask},
		{300 * time.Millisecond, 50 * time.Millisecond, 0, true, fine},
		{400 * time.Millisecond, 190 * time.Millisecond, 0, true, fine},
		{400 * time.Millisecond, 200 * time.Millisecond, 0, true, doubtful},
		{400 * time.Millisecond, 200 * time.Millisecond, 100 * time.Millisecond, true, fine}, // an answer cannot be here yet
		{100 * time.Millisecond, 250 * time.Millisecond, 0, true, fine},                      // something came since
		{3 * time.Second, 2 * time.Second, 0, true, gone},
		{3 * time.Second, 2 * time.Second, time.Second, true, fine},
		{16 * time.Second, 2 * time.Second, 0, false, gone},
	} {
		if got := judge(tc.silence, tc.asked, tc.rtt, tc.load); got != tc.want {
			t.Errorf("%+v: %v", tc, got)
		}
	}
}
