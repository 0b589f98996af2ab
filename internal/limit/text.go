package limit

import (
	"strings"
	"unicode/utf8"
)

// Text returns a copy of at most n bytes of a text that a peer sent and that is kept: of whole
// characters if the text is UTF-8. A part that is no copy would keep all of the text in memory.
func Text(s string, n int) string {
	if len(s) <= n {
		return strings.Clone(s)
	}
	end := n
	for end > max(n-utf8.UTFMax, 0) && !utf8.RuneStart(s[end]) {
		end--
	}
	return strings.Clone(s[:end])
}
