package printable

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func TestLine(t *testing.T) {
	for text, want := range map[string]string{
		"Jürgen \"Q\" <a@b>":        "Jürgen \"Q\" <a@b>",
		"a\x1b[2J\x1b]0;t\x07":      `a\x1b[2J\x1b]0;t\a`,
		"a\nisthmus: b\r\tc\\n":     `a\nisthmus: b\r\tc\n`,
		"\xff\xc3 \u202ecod.exe é":  `\xff\xc3 \u202ecod.exe é`,
		"\x7f\u009b2J\u2028":        `\u007f\u009b2J\u2028`,
		"\ufffd is a character":     "\ufffd is a character",
		"a tag \U000e0041 a 😀 face": `a tag \udb40\udc41 a 😀 face`,
	} {
		if got := Line(text); got != want {
			t.Errorf("%q becomes %s, want %s", text, got, want)
		}
	}
}

func TestLinesKeepsLines(t *testing.T) {
	if got := Lines("a\tb\\n\n  c\r\x1b"); got != "a\tb\\n\n  c\\r\\x1b" {
		t.Errorf("%q", got)
	}
	value := map[string]string{"a": "\x1b\x7f\u009b\u202e\U000e0041\n\\"}
	b, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	var back map[string]string
	if err := json.Unmarshal([]byte(Lines(string(b))), &back); err != nil || back["a"] != value["a"] {
		t.Errorf("%s becomes %s: %q, %v", b, Lines(string(b)), back, err)
	}
}

// A cell stays a cell of its row.
func TestTable(t *testing.T) {
	var b bytes.Buffer
	table := NewTable(&b)
	table.Row("job", "program")
	table.Row("1\n2\tmine", "x\x1b[2J")
	if err := table.Flush(); err != nil {
		t.Fatal(err)
	}
	want := "job         program\n" + `1\n2\tmine  x\x1b[2J` + "\n"
	if b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}

// FuzzWriter compares a text written in two pieces with the whole of it.
func FuzzWriter(f *testing.F) {
	f.Add("é\x1b[2J\xff", 1)
	f.Add("ab\xf0\x9f\x98", 4)
	f.Add("\xf0\x9f\x98\x80", 2)
	f.Add("\x80\x80\x80\x80\x80", 4)
	f.Fuzz(func(t *testing.T, text string, at int) {
		at = max(0, min(at, len(text)))
		var b strings.Builder
		w := Writer{W: &b}
		for _, piece := range []string{text[:at], text[at:]} {
			if n, err := w.Write([]byte(piece)); n != len(piece) || err != nil {
				t.Fatalf("%d of %d bytes, %v", n, len(piece), err)
			}
		}
		if err := w.Flush(); err != nil || b.String() != Lines(text) {
			t.Errorf("%q, want %q; %v", b.String(), Lines(text), err)
		}
	})
}
