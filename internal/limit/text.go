package limit

import (
	"strings"
	"unicode/utf8"
)

// Text returns a copy of at most n bytes of a text that a peer sent and that is kept, or of one that a message is to
// carry: of whole characters, with U+FFFD for what is no UTF-8, as messages carry nothing else. A part that is no copy
// would keep all of the text in memory.
func Text(s string, n int) string {
	return strings.Clone(cut(strings.ToValidUTF8(cut(s, n), "\uFFFD"), n))
}

// cut returns at most n bytes of a text, and no part of a character.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	end := n
	for end > max(n-utf8.UTFMax, 0) && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end]
}
