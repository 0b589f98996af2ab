// Package printable shows texts that others wrote: names, errors, arguments, reasons. A terminal obeys
// what such a text may hold, and a line end in it looks like a line of the program's own, so
// everything that is no printable character is escaped. It keeps no state but that of a Writer.
package printable

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode/utf16"
	"unicode/utf8"
)

// Line returns a text as a part of a line, with escapes for everything that a terminal or a reader
// could misinterpret: control characters, line ends, tabs, those that change the writing direction, and
// bytes that are not UTF-8. Backslashes stay, so that what is escaped already does.
func Line(s string) string { return escape(s, "") }

// Lines returns a text of several lines, with the escapes of Line for all but line ends and tabs. JSON
// remains JSON.
func Lines(s string) string { return escape(s, "\n\t") }

// escape escapes what is not printable and not in keep.
func escape(s, keep string) string {
	var b []byte // of s[:done]; nil: it is as s has it
	done := 0
	for at, r := range s {
		size := utf8.RuneLen(r)
		if r == utf8.RuneError {
			_, size = utf8.DecodeRuneInString(s[at:])
		}
		invalid := r == utf8.RuneError && size == 1
		if !invalid && (strconv.IsPrint(r) || strings.ContainsRune(keep, r)) {
			continue
		}
		b = append(b, s[done:at]...)
		done = at + size
		switch {
		case invalid:
			b = fmt.Appendf(b, `\x%02x`, s[at])
		case r < ' ':
			q := strconv.QuoteRune(r)
			b = append(b, q[1:len(q)-1]...)
		case r <= 0xffff:
			b = fmt.Appendf(b, `\u%04x`, r)
		default: // as JSON has it
			high, low := utf16.EncodeRune(r)
			b = fmt.Appendf(b, `\u%04x\u%04x`, high, low)
		}
	}
	if b == nil {
		return s
	}
	return string(append(b, s[done:]...))
}

// A Writer writes as Lines returns it what is written to it, in whichever pieces that comes. It is not
// safe for concurrent use.
type Writer struct {
	W    io.Writer
	part []byte // the begin of a character whose other bytes are to come
}

// Write implements io.Writer.
func (w *Writer) Write(b []byte) (int, error) {
	text := append(w.part, b...)
	end := len(text)
	for i := 1; i < utf8.UTFMax && i <= len(text); i++ {
		if at := len(text) - i; utf8.RuneStart(text[at]) {
			if !utf8.FullRune(text[at:]) {
				end = at
			}
			break
		}
	}
	w.part = append([]byte(nil), text[end:]...)
	if _, err := io.WriteString(w.W, Lines(string(text[:end]))); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Flush writes the begin of a character that did not go on.
func (w *Writer) Flush() error {
	_, err := io.WriteString(w.W, Lines(string(w.part)))
	w.part = nil
	return err
}

// A Table writes rows in aligned columns. No cell can add a row or a column.
type Table struct{ w *tabwriter.Writer }

// NewTable returns a table without rows.
func NewTable(w io.Writer) *Table { return &Table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)} }

// Row adds a row. Errors are those of Flush.
func (t *Table) Row(cells ...any) {
	for i, c := range cells {
		if i > 0 {
			io.WriteString(t.w, "\t")
		}
		io.WriteString(t.w, Line(fmt.Sprint(c)))
	}
	io.WriteString(t.w, "\n")
}

// Flush writes the rows. The columns of those that follow are aligned anew.
func (t *Table) Flush() error { return t.w.Flush() }
