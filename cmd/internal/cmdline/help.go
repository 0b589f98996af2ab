package cmdline

import (
	"bytes"
	"io"
	"os"
	"strings"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"
)

// minWidth is what a terminal has at least, and minTextWidth of it are a description's at least: what
// stands in front of it may be as wide.
const (
	minWidth     = 40
	minTextWidth = 20
)

// printHelp is the library's help printer, for lines that fit. The library's own wrapping
// loses the columns of the flags.
func printHelp(w io.Writer, template string, data any) {
	var page bytes.Buffer
	cli.HelpPrinterCustom(&page, template, data, nil)
	io.WriteString(w, wrapColumns(page.String(), min(maxColumns, terminalWidth())))
}

// terminalWidth returns the columns of the terminal on standard output, or maxColumns.
func terminalWidth() int {
	size, err := unix.IoctlGetWinsize(int(os.Stdout.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col < minWidth {
		return maxColumns
	}
	return int(size.Col)
}

// wrapColumns breaks the lines of a page that are longer than width. What continues a line starts in
// the column of its description, which follows two spaces or more. A paragraph of which a line was
// broken is filled anew.
func wrapColumns(page string, width int) string {
	var out strings.Builder
	lines := strings.Split(page, "\n")
	for i, line := range lines {
		text := strings.TrimRight(line, " ")
		column := description(text)
		first, rest := wrapLine(text, column, width)
		if rest != "" && column == indent(text) && i+1 < len(lines) && isText(lines[i+1], column) {
			lines[i+1] = rest + " " + strings.TrimLeft(lines[i+1], " ")
			out.WriteString(first)
			continue
		}
		out.WriteString(first + rest)
		if i+1 < len(lines) {
			out.WriteString("\n")
		}
	}
	return out.String()
}

// wrapLine breaks a line, and returns its last part by itself if there are several; those before
// end with a newline.
func wrapLine(text string, column, width int) (before, last string) {
	for len(text) > width {
		at := strings.LastIndexByte(text[:width+1], ' ')
		if at <= column { // its first word does not fit
			next := strings.IndexByte(text[column:], ' ')
			if at = column + next; next <= 0 {
				break
			}
		}
		before += strings.TrimRight(text[:at], " ") + "\n"
		column = min(column, width-minTextWidth)
		text = strings.Repeat(" ", column) + strings.TrimLeft(text[at:], " ")
	}
	if before == "" {
		return text, ""
	}
	return before, text
}

// description returns the column at which a line's text starts: after its last two spaces.
func description(line string) int {
	from := indent(line)
	if at := strings.LastIndex(line, "  "); at >= from {
		return at + 2
	}
	return from
}

func indent(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }

// isText reports whether a line continues a paragraph that is indented by column.
func isText(line string, column int) bool {
	return strings.TrimSpace(line) != "" && indent(line) == column && description(line) == column
}
