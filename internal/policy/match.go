package policy

// match reports whether a name matches a pattern: * matches any text, ? one byte. An unknown name
// matches no pattern.
func match(pattern, name string) bool {
	return name != "" && glob(pattern, name, func(p, n byte) bool { return p == n || p == '?' })
}

// covers reports whether pattern matches every name that other matches. It may return false where
// the answer is true, as for ?* and *?, never the reverse.
func covers(pattern, other string) bool {
	return glob(pattern, other, func(p, o byte) bool { return o != '*' && (p == o || p == '?') })
}

// glob is the usual algorithm: on a mismatch the last * takes one more byte. It takes at most
// len(pattern)*len(text) steps.
func glob(pattern, text string, same func(p, t byte) bool) bool {
	p, t := 0, 0
	star, mark := -1, 0
	for t < len(text) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, t
			p++
		case p < len(pattern) && same(pattern[p], text[t]):
			p++
			t++
		case star >= 0:
			mark++
			p, t = star+1, mark
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}
