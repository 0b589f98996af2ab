package measure

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// Without a doubt the site is measured when the period is over, and an early doubt waits.
func TestAwaitDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		mo := New(Options{Settings: func() Settings { return Settings{} }, Log: slog.New(slog.DiscardHandler)})
		if !mo.awaitDoubt(ctx, time.Hour, time.Millisecond) {
			t.Error("measuring ended")
		}
		mo.Doubt()
		mo.Doubt() // counts as one
		if !mo.awaitDoubt(ctx, time.Millisecond, time.Hour) || mo.Doubted() {
			t.Error("the doubt is not over")
		}
		mo.Doubt()
		ended := make(chan bool, 1)
		go func() { ended <- mo.awaitDoubt(ctx, time.Hour, time.Hour) }()
		synctest.Wait()
		if mo.Doubted() {
			t.Error("the doubt is not heard")
		}
		select {
		case <-ended:
			t.Error("it was measured too soon")
		default:
		}
		cancel()
		if <-ended {
			t.Error("it goes on after the end")
		}
	})
}
