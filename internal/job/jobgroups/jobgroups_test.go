package jobgroups

import (
	"slices"
	"strings"
	"testing"
)

func TestRoundTrip(t *testing.T) {
	l := Layout{{"master", 1}, {"workers", 3}, {"b.0_x-y", 2}}
	if l.String() != "master:1,workers:3,b.0_x-y:2" {
		t.Errorf("written: %s", l)
	}
	got, err := Parse(l.String(), 6)
	if err != nil || !slices.Equal(got, l) {
		t.Fatalf("%v, %v", got, err)
	}
	for rank, want := range []int{0, 1, 1, 1, 2, 2, -1} {
		if g := l.Of(rank); g != want {
			t.Errorf("rank %d is in group %d, want %d", rank, g, want)
		}
	}
	if g := l.Of(-1); g != -1 {
		t.Errorf("rank -1 is in group %d", g)
	}
	if got, err := Parse("", 6); got != nil || err != nil {
		t.Errorf("no text: %v, %v", got, err)
	}
}

func TestRefused(t *testing.T) {
	for text, part := range map[string]string{
		"a":                               "NAME:COUNT",
		"a:":                              "NAME:COUNT",
		"a:0,b:6":                         "NAME:COUNT",
		"a:-1":                            "NAME:COUNT",
		"a:7":                             "add up",
		"a:3,b:4":                         "add up",
		"a:5":                             "5 ranks in all groups, and 6",
		"a:3,a:3":                         "twice",
		"A:6":                             "group name",
		",a:6":                            "NAME:COUNT",
		strings.Repeat("a:1,", MaxGroups): "257 groups",
		"a:99999999999999999999":          "NAME:COUNT",
	} {
		if l, err := Parse(text, 6); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%.40q: %v, %v; want an error with %q", text, l, err, part)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("master:1,workers:5", 6)
	f.Fuzz(func(t *testing.T, text string, size int) {
		l, err := Parse(text, size)
		if err != nil || l == nil {
			return
		}
		if again, err := Parse(l.String(), size); err != nil || !slices.Equal(again, l) {
			t.Errorf("%q: %v, then %v, %v", text, l, again, err)
		}
	})
}
