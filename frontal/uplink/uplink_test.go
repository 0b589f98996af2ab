package uplink

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/overlay"
)

func newSet(patience time.Duration) *Set {
	return New("frontal sitea", []string{"b1:443", "b2:443"}, patience, slog.New(slog.DiscardHandler))
}

// The broker that is asked stays the one until its session ends or it is doubted, and is
// then the first that has a session.
func TestWhoIsAsked(t *testing.T) {
	u := newSet(0)
	first, second := new(control.Session), new(control.Session)
	asked := func(when string, want *control.Session) {
		t.Helper()
		if got := u.Current(); got != want {
			t.Errorf("%s: %s is asked", when, u.Addr(got))
		}
	}
	asked("without a session", nil)
	u.Opened(u.All[1], second, "b2", 1)
	asked("with one", second)
	u.Opened(u.All[0], first, "b1", 1)
	asked("with the first of the settings besides", second)
	if all := u.Sessions(); !u.HasSpare() || len(all) != 2 || all[0] != first || all[1] != second {
		t.Error("not both are told, in the order of the settings")
	}
	if !u.Doubt(second) {
		t.Error("there is no other")
	}
	asked("after a doubt", first)
	if !u.Doubt(second) {
		t.Error("who is not asked is not doubted")
	}
	asked("after a doubt of another", first)
	if !u.Doubt(first) {
		t.Error("there is no other")
	}
	asked("after a doubt of the first", second)
	u.Doubt(second)
	asked("after a doubt of the second", first)
	u.Lost(second)
	if u.Doubt(first) {
		t.Error("there is another")
	}
	asked("after a doubt of the only one", first)
	u.Lost(first)
	asked("after all have ended", nil)
}

// A call waits for a broker for as long as the outage may last, but keeps the time to say
// why there is none.
func TestGetWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newSet(2 * time.Second)
		start := time.Now()
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := u.Get(short)
		if !errors.Is(err, overlay.ErrUnreachable) || time.Since(start) != time.Second-AnswerMargin {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		if text := err.Error(); !strings.Contains(text, "frontal sitea has no session with the broker at b1:443 since ") || !strings.Contains(text, ", nor with the broker at b2:443") {
			t.Error(text)
		}
		s := new(control.Session)
		time.AfterFunc(time.Second, func() { u.Opened(u.All[0], s, "b1", 1) })
		if got, err := u.Get(t.Context()); got != s || err != nil {
			t.Errorf("one that came in time: %v", err)
		}
		u.Failed(u.All[1], errors.New("broker at b2:443: refused"))
		if st := u.Status(); !st[0].Up || !st[0].Asked || st[1].Up || !strings.Contains(st[1].Cause, "refused") {
			t.Errorf("%+v", st)
		}
	})
}

// What one broker says counts, where the others are away or silent.
func TestOnEach(t *testing.T) {
	u := newSet(0)
	first, second := new(control.Session), new(control.Session)
	u.Opened(u.All[0], first, "b1", 1)
	u.Opened(u.All[1], second, "b2", 1)
	for _, c := range []struct{ first, second, want error }{
		{nil, nil, nil},
		{overlay.ErrTimeout, nil, nil},
		{nil, overlay.ErrUnreachable, nil},
		{overlay.ErrTimeout, overlay.ErrUnreachable, overlay.ErrTimeout},
		{nil, overlay.ErrForbidden, overlay.ErrForbidden},
	} {
		err := u.OnEach(func(s *control.Session) error {
			if s == first {
				return c.first
			}
			return c.second
		})
		if err != c.want {
			t.Errorf("%v and %v: %v, want %v", c.first, c.second, err, c.want)
		}
	}
}
