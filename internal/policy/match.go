package policy

// match reports whether a pattern fits a name: * stands for any text, ? for one
// byte. No pattern fits a name that is not known.
func match(pattern, name string) bool {
	return name != "" && glob(pattern, name, func(p, n byte) bool { return p == n || p == '?' })
}

// covers reports whether pattern fits every name that other fits. It may say no
// where the answer is yes, as for ?* and *?, never the other way round.
func covers(pattern, other string) bool {
	return glob(pattern, other, func(p, o byte) bool { return o != '*' && (p == o || p == '?') })
}

// glob is the usual walk: on a mismatch the last * takes one byte more. It ends
// after len(pattern)*len(text) steps at most.
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
