package limit

import (
	"strings"
	"testing"
	"unsafe"
)

// A text is cut between characters, and shares no memory with what it was cut from.
func TestText(t *testing.T) {
	for _, c := range []struct {
		text string
		n    int
		want string
	}{
		{"", 5, ""}, {"abc", 5, "abc"}, {"abc", 3, "abc"}, {"abc", 2, "ab"}, {"abc", 0, ""},
		{"aü", 2, "a"}, {"aü", 3, "aü"}, {"€€", 5, "€"}, {"𝄞x", 3, ""}, {"\x80\x80\x80\x80\x80\x80\x80\x80", 6, "\x80\x80"},
	} {
		if got := Text(c.text, c.n); got != c.want {
			t.Errorf("%q, at most %d bytes: %q", c.text, c.n, got)
		}
	}
	for _, n := range []int{4, 9} {
		long := strings.Repeat("x", 9)
		if got := Text(long, n); unsafe.StringData(got) == unsafe.StringData(long) {
			t.Errorf("%d bytes of 9 are no copy", n)
		}
	}
}
