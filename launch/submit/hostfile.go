package submit

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// ReadHostfile parses a file of hosts as Open MPI's and MPICH's launchers have it, and returns what
// ParseHosts does: a host in a line, NODE@SITE or SITE/NODE, with slots=RANKS behind it or :RANKS at
// it, or neither; # begins a comment. name is the file's name in errors.
func ReadHostfile(r io.Reader, name string) ([]HostShare, error) {
	var words []string
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		text, _, _ := strings.Cut(lines.Text(), "#")
		fields := strings.Fields(text)
		if len(fields) == 0 {
			continue
		}
		word := fields[0]
		for _, f := range fields[1:] {
			slots, ok := strings.CutPrefix(f, "slots=")
			switch {
			case ok:
				word += ":" + slots
			case strings.HasPrefix(f, "max_slots="), strings.HasPrefix(f, "max-slots="): // a host's own offer bounds them
			default:
				return nil, fmt.Errorf("%s:%d: %q: want a host and slots=RANKS, such as n1@paris slots=8", name, n, f)
			}
		}
		if _, err := parseHost(word); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, n, err)
		}
		words = append(words, word)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(words) == 0 {
		return nil, fmt.Errorf("%s names no host", name)
	}
	hosts, err := ParseHosts(strings.Join(words, ","))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return hosts, nil
}
