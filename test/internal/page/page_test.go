package page

import (
	"fmt"
	"slices"
	"testing"
)

const example = "# Title\n\nAsk `isthmus ca\ntoken x`, and `y`:\n\n" +
	"    a --b \\\n        c  # why\n    d <<END\n    text\n    END\n\n" +
	"- a list\n    that goes on with `z`\n\n" +
	"```console\n$ e\nanswer\nroot@gw.sitea# f\n```\n" +
	"**proxy.yaml**:\n\n```yaml\nbroker: b\n```\nlast `g`\n"

func TestParse(t *testing.T) {
	p := Parse(example)
	if got, want := fmt.Sprint(p.Commands()), fmt.Sprint([]Line{
		{6, "a --b c  # why", false}, {8, "d <<END\ntext\nEND", false}, {16, "e", false}, {18, "f", false},
	}); got != want {
		t.Errorf("commands %s, want %s", got, want)
	}
	if got, want := fmt.Sprint(p.Spans), fmt.Sprint([]Line{{3, "isthmus ca token x", true}, {4, "y", true}, {13, "z", true}, {25, "g", true}}); got != want {
		t.Errorf("spans %s, want %s", got, want)
	}
	if b := p.Blocks[len(p.Blocks)-1]; b.Language != "yaml" || b.Title != "**proxy.yaml**:" || b.Number != 23 || b.Text() != "broker: b\n" {
		t.Errorf("the last block is %+v", b)
	}
}

func TestSimple(t *testing.T) {
	for _, tc := range []struct {
		line string
		want [][]string
	}{
		{"a -b 'c d' \"e $f\"  # g", [][]string{{"a", "-b", "c d", "e $f"}}},
		{"X=1 sudo -u isthmus a --token - < token", [][]string{{"a", "--token", "-"}}},
		{"(umask 077; a b > c)", [][]string{{"umask", "077"}, {"a", "b"}}},
		{"a && b | c & d 2>&1", [][]string{{"a"}, {"b"}, {"c"}, {"d"}}},
		{"export X=$(a b $(c)) ", [][]string{{"c"}, {"a", "b", "$(c)"}}},
		{"for i in 1 2; do a \"$i\"; done", [][]string{{"for", "i", "in", "1", "2"}, {"a", "$i"}}},
		{"srun --overlap -N 4 -n 4 a &", [][]string{{"a"}}},
		{"sh -c 'exec a b'", [][]string{{"sh", "-c", "exec a b"}, {"a", "b"}}},
		{"timeout 600 time a", [][]string{{"a"}}},
		{"a <<END\nb\nEND", [][]string{{"a"}}},
	} {
		if got := Simple(tc.line); !slices.EqualFunc(got, tc.want, slices.Equal[[]string]) {
			t.Errorf("%s: %q, want %q", tc.line, got, tc.want)
		}
	}
}
