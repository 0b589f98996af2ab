package daemon

import "strings"

// nearest is the hint behind an unknown key of the section f: a key of the
// section that is spelled alike, or one that lies in a section below.
func (f *field) nearest(name string) string {
	var here, below []string
	for _, c := range f.children {
		here = append(here, c.name)
		for _, deep := range c.children {
			if deep.name == name {
				below = append(below, deep.key)
			}
		}
	}
	if hint := didYouMean(name, here); hint != "" {
		return hint
	}
	if len(below) > 0 {
		return didYouMean(below[0], below)
	}
	return "; known here: " + strings.Join(here, ", ")
}

// didYouMean is the hint behind a wrong word: the known word with the fewest
// edits between, when that is close enough to be a slip of the hand.
func didYouMean(word string, known []string) string {
	best, edits := "", 1+len(word)/3
	for _, k := range known {
		if n := distance(strings.ToLower(word), strings.ToLower(k)); n <= edits && (best == "" || n < edits) {
			best, edits = k, n
		}
	}
	if best == "" {
		return ""
	}
	return "; did you mean " + best + "?"
}

// distance counts the insertions, deletions and replacements of bytes, and
// swaps of two neighbours, that turn a into b.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, last, row = last, row, before
		row[0] = i
		for j := 1; j <= len(b); j++ {
			replace := last[j-1]
			if a[i-1] != b[j-1] {
				replace++
			}
			row[j] = min(replace, last[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return row[len(b)]
}
