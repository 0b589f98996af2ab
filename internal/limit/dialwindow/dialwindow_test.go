package dialwindow

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// Slots come in order of arrival, a waiter that gives up takes none, and a slot that is not used
// goes to the next.
func TestTurnsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(slog.New(slog.DiscardHandler))
		var held []*Slot
		for range initialSize {
			turn, err := d.Wait(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, turn)
		}
		var mu sync.Mutex
		var order []int
		var all sync.WaitGroup
		impatient, giveUp := context.WithCancel(t.Context())
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for i := range 4 {
			ctx := map[int]context.Context{0: impatient, 1: short}[i]
			if ctx == nil {
				ctx = t.Context()
			}
			all.Go(func() {
				turn, err := d.Wait(ctx)
				switch {
				case i == 0 && errors.Is(err, context.Canceled):
				case i == 1 && errors.Is(err, ErrNoSlot) && errors.Is(err, overlay.ErrOverloaded) && strings.Contains(err.Error(), "within 1s, after 32 others"):
				case i < 2 || err != nil:
					t.Errorf("%d: %v", i, err)
				default:
					mu.Lock()
					order = append(order, i)
					mu.Unlock()
					time.Sleep(time.Second)
					turn.End()
				}
			})
			synctest.Wait()
		}
		giveUp()
		time.Sleep(2 * time.Second)
		held[0].End()
		held[0].End() // counts once
		time.Sleep(time.Second / 2)
		mu.Lock()
		if len(order) != 1 || order[0] != 2 {
			t.Errorf("%v had their turn, want 2", order)
		}
		mu.Unlock()
		all.Wait()
		if len(order) != 2 || order[1] != 3 {
			t.Errorf("%v had their turn, want 2 and 3", order)
		}
		if opened(d) != initialSize-1 || len(d.waiting) != 0 {
			t.Errorf("%d open, %d waiting", opened(d), len(d.waiting))
		}
	})
}

// A dial uses the slot of its context once, counts for a while only without an answer, and leaves
// nothing behind.
func TestDialsCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(slog.New(slog.DiscardHandler))
		turn, err := d.Wait(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx := turn.With(t.Context())
		for i := range 2 { // the second one has a slot of its own
			if _, err := Dial(ctx, d, func(context.Context) (int, error) {
				if opened(d) != 1 {
					t.Errorf("dial %d: %d open", i, opened(d))
				}
				return 0, nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		Dial(t.Context(), d, func(context.Context) (int, error) {
			time.Sleep(slotTime + time.Second)
			if opened(d) != 0 {
				t.Error("a dial without an answer still counts")
			}
			return 0, overlay.ErrTimeout
		})
		if opened(d) != 0 {
			t.Errorf("%d open", opened(d))
		}
	})
}

// A limit is reported once, with its rate, to the log and to callers.
func TestSaysTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		d := New(slog.New(slog.NewTextHandler(&log, nil)))
		if err := d.Limited(); err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for i := range 40 { // five of them succeed each second
			all.Go(func() {
				Dial(t.Context(), d, func(context.Context) (int, error) {
					time.Sleep(time.Duration(1+i/5) * time.Second)
					return 0, nil
				})
			})
		}
		all.Wait()
		if err := d.Limited(); !errors.Is(err, overlay.ErrOverloaded) || !strings.Contains(err.Error(), "new connections a second") {
			t.Errorf("said %v", err)
		}
		if n := strings.Count(log.String(), "remedy="); n != 1 {
			t.Errorf("the log says it %d times:\n%s", n, &log)
		}
		time.Sleep(memory + time.Second)
		if err := d.Limited(); err != nil {
			t.Errorf("after a while %v", err)
		}
	})
}

// opened returns how many dials count.
func opened(d *Window) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.w.open
}
