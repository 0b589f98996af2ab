package jobkey

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
)

// A key can be read from the descriptor repeatedly, and cannot be modified.
func TestKeyByDescriptor(t *testing.T) {
	k := mustKey(t, "job")
	f, err := k.File()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got, err := FromDescriptor(fmt.Sprint(f.Fd())); err != nil || got != k {
			t.Errorf("%v, %v", got, err)
		}
	}
	if _, err := f.WriteAt([]byte("x"), 0); err == nil && runtime.GOOS == "linux" {
		t.Error("the key was changed")
	}
	number := fmt.Sprint(f.Fd())
	f.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	for _, c := range []struct{ number, want string }{
		{number, ""}, {"", "no descriptor"}, {"-1", "no descriptor"}, {"99999999999", "no descriptor"}, {"1000000", "closed on the way"}, {fmt.Sprint(w.Fd()), ""},
	} {
		if _, err := FromDescriptor(c.number); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("descriptor %q: %v", c.number, err)
		}
	}
}
