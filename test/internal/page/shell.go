package page

import (
	"regexp"
	"slices"
	"strings"
)

// Simple returns the simple commands of a shell's line, each as its words without quotes, among
// them those within $(...) and (...), and what a wrapper such as sudo runs. Assignments before a
// command, redirections, the shell's own words and comments are left out. A variable or $(...) stays
// in its word as it is written.
func Simple(line string) (all [][]string) {
	line, _, _ = strings.Cut(line, "\n") // a here-document
	r := reader{text: line}
	r.list()
	for _, words := range r.found {
		if words = unwrap(words); len(words) > 0 {
			all = append(all, words)
			if i := slices.Index(words, "-c"); words[0] == "sh" && i > 0 && i+1 < len(words) {
				all = append(all, Simple(words[i+1])...)
			}
		}
	}
	return all
}

// reader reads a line.
type reader struct {
	text  string
	found [][]string
}

// list reads commands up to the closing parenthesis or the end.
func (r *reader) list() {
	var words []string
	end := func() {
		if len(words) > 0 {
			r.found = append(r.found, words)
		}
		words = nil
	}
	defer end()
	for r.text != "" {
		switch c := r.text[0]; {
		case c == ' ':
			r.text = r.text[1:]
		case c == '#':
			r.text = ""
		case c == ')':
			return
		case c == '(':
			end()
			r.parenthesis()
		case strings.IndexByte(";|&", c) >= 0:
			r.text = r.text[1:]
			end()
		case redirection.MatchString(r.text):
			r.text = strings.TrimLeft(r.text[len(redirection.FindString(r.text)):], " ")
			if r.text != "" && r.text[0] != '(' {
				r.word()
			}
		default:
			words = append(words, r.word())
		}
	}
}

var redirection = regexp.MustCompile(`^[0-9]?(<<|>>|[<>])&?`)

// parenthesis reads a list in parentheses.
func (r *reader) parenthesis() {
	r.text = r.text[1:]
	r.list()
	r.text = strings.TrimPrefix(r.text, ")")
}

// word reads one word.
func (r *reader) word() string {
	var b strings.Builder
	for quote := byte(0); r.text != ""; {
		c := r.text[0]
		switch {
		case quote == 0 && strings.IndexByte(" ;|&()<>", c) >= 0:
			return b.String()
		case quote != '\'' && strings.HasPrefix(r.text, "$("):
			rest := r.text
			r.text = r.text[1:]
			r.parenthesis()
			b.WriteString(rest[:len(rest)-len(r.text)])
			continue
		case quote != '\'' && c == '\\' && len(r.text) > 1:
			b.WriteByte(r.text[1])
			r.text = r.text[2:]
			continue
		case c == quote:
			quote = 0
		case quote == 0 && (c == '\'' || c == '"'):
			quote = c
		default:
			b.WriteByte(c)
		}
		r.text = r.text[1:]
	}
	return b.String()
}

var assignment = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)

// unwrap removes what stands before the command proper.
func unwrap(words []string) []string {
	for len(words) > 0 {
		switch first := words[0]; {
		case assignment.MatchString(first), slices.Contains([]string{"do", "done", "then", "exec", "time", "export", "eval", "{", "}", "!"}, first):
			words = words[1:]
		case first == "timeout", first == "at": // at is a function of the page that rehearses a site
			words = words[min(2, len(words)):]
		case first == "sudo" && len(words) > 2 && words[1] == "-u":
			words = words[3:]
		case first == "sudo":
			words = words[1:]
		case first == "srun":
			words = words[1:]
			for len(words) > 0 && strings.HasPrefix(words[0], "-") {
				n := 1
				if len(words[0]) == 2 {
					n = 2 // -N 4
				}
				words = words[min(n, len(words)):]
			}
		default:
			return words
		}
	}
	return nil
}
