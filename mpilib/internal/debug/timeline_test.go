package debug

import (
	"fmt"
	"testing"
)

// The counters continue for as long as they are kept.
func TestNumbers(t *testing.T) {
	var n numbers
	for i := range 5 {
		if got := n.next("a"); got != i {
			t.Errorf("%d, want %d", got, i)
		}
	}
	for i := range maxNumbers {
		n.next(fmt.Sprint(i))
	}
	if got := n.next("a"); got != 5 {
		t.Errorf("%d after others, want 5", got)
	}
	for i := range 3 * maxNumbers {
		n.next(fmt.Sprint("more", i))
	}
	if len(n.young)+len(n.old) > 2*maxNumbers {
		t.Errorf("%d are remembered", len(n.young)+len(n.old))
	}
}
