package stream

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-grid/isthmus/internal/rtt"
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
		{10 * time.Second, 3990 * time.Millisecond, time.Second, AskIdle, true, doubtful},
		{10 * time.Second, 4 * time.Second, time.Second, AskIdle, true, gone},
	} {
		if got := judge(tc.silence, tc.asked, tc.rtt, tc.idle, tc.load); got != tc.want {
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

// TestAnswerTime: an answer may take as long as answers have taken, and no longer where they all take the same.
func TestAnswerTime(t *testing.T) {
	const ms = time.Millisecond
	steady := Carrier{least: 20 * ms, trips: rtt.Estimate{SRTT: 20 * ms}}
	answered := func(c *Carrier, took time.Duration) { c.trips = c.trips.Add(took) }
	for range 20 {
		answered(&steady, 20*ms)
	}
	if got := steady.answerTime(); got != 20*ms {
		t.Errorf("without variation: %v", got)
	}
	answered(&steady, 800*ms)
	if got := steady.answerTime(); got < 800*ms {
		t.Errorf("after one that took 800 ms: %v", got)
	}
	for range 60 {
		answered(&steady, 20*ms)
	}
	if got := steady.answerTime(); got > 25*ms {
		t.Errorf("long after it: %v", got)
	}
	varied, rng := Carrier{least: 50 * ms, trips: rtt.Estimate{SRTT: 50 * ms}}, rand.New(rand.NewPCG(1, 2))
	for i := range 1000 {
		took := 50*ms + time.Duration(rng.Int64N(int64(400*ms)))
		if bound := varied.answerTime(); i > 8 && judge(took, took, bound, AskIdle, true) == doubtful {
			t.Fatalf("the %d. answer took %v, which is doubted after a bound of %v", i, took, bound)
		}
		answered(&varied, took)
	}
}

// TestQuestionAgain: the answer to the first of several questions is timed.
func TestQuestionAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q question
		q.put(1)
		number := q.number
		time.Sleep(time.Second)
		q.since = 0 // something else has arrived
		q.put(21)
		time.Sleep(time.Second)
		if took, ok := q.answer(number); !ok || took != 2*time.Second {
			t.Errorf("it took %v, %v", took, ok)
		}
		if _, ok := q.answer(number); ok {
			t.Error("the second answer counts too")
		}
	})
}
