package dialwindow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// Window makes dials wait for their turn. It is safe for concurrent use. Its users bound the number
// of waiters by bounding the connections that they open at a time.
type Window struct {
	log *slog.Logger

	mu      sync.Mutex // guards the fields below
	w       window
	waiting []chan struct{} // in order of arrival; closed when their turn has come
	logged  bool            // the current limit has been logged
}

// New returns a window. It logs to log when the site turns out to limit connections.
func New(log *slog.Logger) *Window { return &Window{log: log, w: newWindow()} }

// Slot is the right to make one dial. It ends with the dial, or with End.
type Slot struct {
	in    *Window
	used  atomic.Bool
	ended atomic.Bool
}

// ErrNoSlot means that a dial was not made, since its turn did not come in time.
var ErrNoSlot = errors.New("its turn to open a connection did not come")

// Wait waits for a slot until ctx ends. Unless ctx was cancelled the error is an ErrNoSlot
// and an overlay.ErrOverloaded, and says what the dial waited for.
func (d *Window) Wait(ctx context.Context) (*Slot, error) {
	begin := time.Now()
	d.mu.Lock()
	if len(d.waiting) == 0 && d.w.admit(begin) {
		d.mu.Unlock()
		return &Slot{in: d}, nil
	}
	mine := make(chan struct{})
	d.waiting = append(d.waiting, mine)
	d.next(begin)
	d.mu.Unlock()
	select {
	case <-mine:
		return &Slot{in: d}, nil
	case <-ctx.Done():
	}
	return nil, d.giveUp(ctx, mine, time.Since(begin))
}

// giveUp leaves the queue, or returns a slot that was granted meanwhile.
func (d *Window) giveUp(ctx context.Context, mine chan struct{}, waited time.Duration) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	found := false
	for i, c := range d.waiting {
		if c == mine {
			d.waiting = append(d.waiting[:i], d.waiting[i+1:]...)
			found = true
			break
		}
	}
	if !found {
		d.w.leave()
		d.next(time.Now())
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return context.Canceled
	}
	why := "of which none has been answered"
	if rate, is := d.w.limited(time.Now()); is {
		why = limit(rate)
	}
	return fmt.Errorf("%w: %w within %v, after %d others: %s", overlay.ErrOverloaded, ErrNoSlot, waited.Round(time.Millisecond), d.w.open, why)
}

// next gives slots to the first waiters as far as the window permits. The caller must hold d.mu.
func (d *Window) next(now time.Time) {
	for len(d.waiting) > 0 && d.w.admit(now) {
		close(d.waiting[0])
		d.waiting = d.waiting[1:]
	}
}

// End returns the slot, if no dial has used it. It does nothing for a nil Slot.
func (s *Slot) End() {
	if s != nil && s.used.CompareAndSwap(false, true) {
		s.end()
	}
}

func (s *Slot) end() {
	if s.ended.CompareAndSwap(false, true) {
		s.in.mu.Lock()
		defer s.in.mu.Unlock()
		s.in.w.leave()
		s.in.next(time.Now())
	}
}

type key struct{}

// With returns a context whose next Dial of a window uses this slot.
func (s *Slot) With(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, s) }

// Dial makes a dial with the slot in ctx, or else waits for one.
func Dial[C any](ctx context.Context, d *Window, dial func(context.Context) (C, error)) (c C, err error) {
	t, _ := ctx.Value(key{}).(*Slot)
	if t == nil || t.in != d || !t.used.CompareAndSwap(false, true) {
		if t, err = d.Wait(ctx); err != nil {
			return c, err
		}
		t.used.Store(true)
	}
	defer t.end()
	begin := time.Now()
	defer time.AfterFunc(slotTime, func() {
		if d.Limited() == nil {
			t.end()
		}
	}).Stop()
	defer time.AfterFunc(limitedSlotTime, t.end).Stop()
	if c, err = dial(ctx); err == nil {
		d.answered(synLost(c, time.Since(begin)))
	}
	return c, err
}

// answered records an answer.
func (d *Window) answered(late bool) {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.w.answered(now, late)
	rate, is := d.w.limited(now)
	if is && !d.logged {
		d.log.Warn("the site permits few new connections per second; they are queued, and techniques that need several are skipped",
			"about_per_second", math.Round(rate),
			"remedy", "raise the limit for new TCP connections (SYN) that the site's firewall has for this host")
	}
	d.logged = is
}

// Limited returns nil, or an overlay.ErrOverloaded with the reason for avoiding operations that
// need several connections.
func (d *Window) Limited() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if rate, is := d.w.limited(time.Now()); is {
		return fmt.Errorf("%w: %s", overlay.ErrOverloaded, limit(rate))
	}
	return nil
}

func limit(rate float64) string {
	return fmt.Sprintf("the site's firewall permits about %.0f new connections a second", math.Max(rate, 1))
}
