package cmdline

import (
	"strings"
	"testing"
)

func TestWrapColumns(t *testing.T) {
	for _, tc := range []struct{ name, page, want string }{
		{"short", "a b\n\n  c  d\n", "a b\n\n  c  d\n"},
		{"a paragraph is filled", "   one two three four five six seven eight nine ten\n   eleven twelve\n\n   last\n",
			"   one two three four five six seven\n   eight nine ten eleven twelve\n\n   last\n"},
		{"a description keeps its column", "   --flag X    what it means and some more words\n   --other    b\n",
			"   --flag X    what it means and some\n               more words\n   --other    b\n"},
		{"what follows may be another item", "   one two three four five six seven eight nine ten\n     isthmus run\n",
			"   one two three four five six seven\n   eight nine ten\n     isthmus run\n"},
		{"a word that does not fit", "   " + strings.Repeat("x", 50) + " y\n", "   " + strings.Repeat("x", 50) + "\n   y\n"},
		{"only one word", strings.Repeat("x", 50), strings.Repeat("x", 50)},
		{"a name that leaves no room", strings.Repeat("x", 38) + "  some text", strings.Repeat("x", 38) + "  some\n" + strings.Repeat(" ", 20) + "text"},
	} {
		if got := wrapColumns(tc.page, minWidth); got != tc.want {
			t.Errorf("%s:\n%s\nwant:\n%s", tc.name, got, tc.want)
		}
	}
}

// No word is lost, and no line that can be broken is longer than it may be.
func FuzzWrapColumns(f *testing.F) {
	f.Add("   a  b c\n", 60)
	f.Fuzz(func(t *testing.T, page string, width int) {
		if width < minWidth || width > 200 {
			return
		}
		got := wrapColumns(page, width)
		if strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields(page), " ") {
			t.Errorf("%q became %q", page, got)
		}
	})
}
