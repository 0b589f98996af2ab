package daemon

import (
	"strings"

	"github.com/urfave/cli/v2"
	"github.com/xrash/smetrics"
)

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
	if hint := DidYouMean(name, "", here); hint != "" {
		return hint
	}
	if len(below) > 0 {
		return DidYouMean(below[0], "", below)
	}
	return "; known here: " + strings.Join(here, ", ")
}

// minLikeness is how alike two words are, of 1, at least, when one may be meant
// by the other.
const minLikeness = 0.85

// DidYouMean is the hint behind a wrong word, of which all that is known begins
// with prefix: the known word that is most like it, when that is close enough to
// be a slip of the hand. The measure is the one by which package cli suggests,
// which does so however little the words have in common.
func DidYouMean(word, prefix string, known []string) string {
	best, likeness := "", minLikeness
	for _, k := range known {
		if isSwapped(word, k) {
			return "; did you mean " + prefix + k + "?"
		}
		if n := smetrics.JaroWinkler(strings.ToLower(word), strings.ToLower(k), 0.7, 4); n > likeness {
			best, likeness = k, n
		}
	}
	if best == "" {
		return ""
	}
	return "; did you mean " + prefix + best + "?"
}

// isSwapped reports whether two neighbouring letters of b stand the other way round in a. That is a
// slip of the hand in short words too, which have next to nothing in common by the measure: it
// ignores letters that are apart by half the length, so that rnu shares one letter of three with run.
func isSwapped(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	i := 0
	for i < len(a) && a[i] == b[i] {
		i++
	}
	return i+2 <= len(a) && a[i] == b[i+1] && a[i+1] == b[i] && a[i+2:] == b[i+2:]
}

// UnknownFlag says what is wrong with a command line if err is package flag's
// complaint of a flag that is not known, and suggests one of the flags.
func UnknownFlag(err error, flags []cli.Flag) (text string, ok bool) {
	name, ok := strings.CutPrefix(err.Error(), "flag provided but not defined: -")
	if !ok {
		return "", false
	}
	name = strings.TrimLeft(name, "-")
	var known []string
	for _, f := range flags {
		known = append(known, f.Names()...)
	}
	return "unknown flag --" + name + DidYouMean(name, "--", known), true
}
