package connhelper

import (
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// An overloaded target is asked again.
func TestBusyTarget(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	f := newFakeFrontal(t, open, overlay.Reversed)
	s1, _ := f.helper("a1")
	s2, _ := f.helper("a2")
	r0 := join(t, s1, key, 0)
	join(t, s2, key, 1)
	f.mu.Lock()
	f.fails = map[overlay.Technique]error{overlay.Reversed: overlay.ErrOverloaded}
	f.mu.Unlock()
	relieved := make(chan struct{})
	go func() { // ends when it was asked twice, or with the test
		defer close(relieved)
		for ; t.Context().Err() == nil; time.Sleep(time.Millisecond) {
			f.mu.Lock()
			if f.asked >= 2 {
				f.fails = nil
				f.mu.Unlock()
				return
			}
			f.mu.Unlock()
		}
	}()
	if path, _ := r0.dialled(1); path.Technique != overlay.Reversed {
		t.Errorf("path %v", path)
	}
	<-relieved
}
