package cmdline

import (
	"bytes"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/isthmus-grid/isthmus/internal/printable"
)

// The escape sequences of colours, and their end.
const (
	Red    = "\x1b[31m"
	Green  = "\x1b[32m"
	Yellow = "\x1b[33m"
	Reset  = "\x1b[0m"
)

// states are the words of tables that stand out. One is a whole cell: at the end of a line, or two spaces
// before the next.
var states = regexp.MustCompile(`(^|  )(up|connected|running|away|unknown|no path|held|starting|started|ending)(  |$)`)

// Colour returns a line of a table with its states in colours: good ones green, bad ones red, others yellow.
func Colour(line string) string {
	return states.ReplaceAllStringFunc(line, func(cell string) string {
		state := strings.TrimSpace(cell)
		colour := Yellow
		switch state {
		case "up", "connected", "running":
			colour = Green
		case "away", "no path":
			colour = Red
		}
		return strings.Replace(cell, state, colour+state+Reset, 1)
	})
}

// Coloured has a table printed to w, in colours if that is a command's standard output, a terminal, and the user has not
// said otherwise (NO_COLOR, or TERM=dumb).
func Coloured(w io.Writer, table func(io.Writer) error) error {
	out, is := w.(*output)
	if !is || !wantsColour(out.w.W) {
		return table(w)
	}
	var b bytes.Buffer
	err := table(&b)
	for line := range strings.Lines(printable.Lines(b.String())) {
		text := strings.TrimSuffix(line, "\n")
		out.writeAsIs(Colour(text) + line[len(text):])
	}
	return err
}

func wantsColour(w io.Writer) bool {
	f, is := w.(*os.File)
	return is && IsTerminal(f) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// IsTerminal reports whether f is a terminal, or another character device.
func IsTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
