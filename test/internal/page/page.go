// Package page finds what the pages of the documentation have a reader type: the command lines in
// their blocks and between backquotes, and the settings in blocks of YAML. It knows what a shell
// makes of a line, as far as the pages need it, and no program. It keeps no state.
package page

import (
	"regexp"
	"strings"
)

// Line is a command line of a page.
type Line struct {
	Number int    // of the page's line with which it begins, from 1
	Text   string // without prompt; continued lines are joined
	Inline bool   // between backquotes, where it may be a mention and no whole command
}

// Block is a block of a page.
type Block struct {
	Number   int    // of its first line
	Language string // of a fenced one; "" where none is named
	Title    string // the last line of text before it
	Lines    []string
}

// Text is the block as it stands.
func (b Block) Text() string { return strings.Join(b.Lines, "\n") + "\n" }

// Page is the text of a page, divided.
type Page struct {
	Blocks []Block
	Spans  []Line // what is between backquotes in the text
}

const indent = "    "

// Parse divides a page.
func Parse(text string) Page {
	var p Page
	var plain []string // the page without its blocks
	title, blank, lines := "", true, strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		fence, language, fenced := strings.Cut(line, "```")
		switch {
		case fenced && strings.TrimSpace(fence) == "" && !strings.Contains(language, "`"):
			b := Block{Number: i + 2, Language: strings.TrimSpace(language), Title: title}
			for i++; i < len(lines) && strings.TrimSpace(lines[i]) != "```"; i++ {
				b.Lines = append(b.Lines, strings.TrimPrefix(lines[i], fence))
			}
			p.Blocks = append(p.Blocks, b)
			plain = append(plain, make([]string, min(len(b.Lines)+2, len(lines)-len(plain)))...)
		case blank && strings.HasPrefix(line, indent):
			b := Block{Number: i + 1, Title: title}
			for ; i < len(lines) && strings.HasPrefix(lines[i], indent); i++ {
				b.Lines = append(b.Lines, strings.TrimPrefix(lines[i], indent))
			}
			i--
			p.Blocks = append(p.Blocks, b)
			plain = append(plain, make([]string, len(b.Lines))...)
		default:
			plain = append(plain, line)
			if strings.TrimSpace(line) != "" {
				title = line
			}
		}
		blank = strings.TrimSpace(line) == ""
	}
	p.Spans = spans(plain)
	return p
}

// spans returns what is between backquotes, also over the end of a line, in each paragraph.
func spans(lines []string) (all []Line) {
	for first := 0; first < len(lines); first++ {
		end := first
		for end < len(lines) && strings.TrimSpace(lines[end]) != "" {
			end++
		}
		paragraph := strings.Join(lines[first:end], "\n")
		for _, at := range span.FindAllStringSubmatchIndex(paragraph, -1) {
			text := strings.Join(strings.Fields(paragraph[at[2]:at[3]]), " ")
			all = append(all, Line{Number: first + 1 + strings.Count(paragraph[:at[0]], "\n"), Text: text, Inline: true})
		}
		first = end
	}
	return all
}

var span = regexp.MustCompile("`([^`]+)`")

var prompt = regexp.MustCompile(`^(?:[a-z]+@[a-z0-9.]+)?[$#] `)

// Commands returns the command lines of the page's blocks, in their order: of a block with prompts
// those after a prompt, of another one all. The text of a here-document belongs to its command.
func (p Page) Commands() (all []Line) {
	for _, b := range p.Blocks {
		switch b.Language {
		case "", "sh", "console":
			all = append(all, b.commands()...)
		}
	}
	return all
}

func (b Block) commands() (all []Line) {
	prompts := false
	for _, line := range b.Lines {
		prompts = prompts || prompt.MatchString(line)
	}
	for i := 0; i < len(b.Lines); i++ {
		number, line := b.Number+i, b.Lines[i]
		if prompts && !prompt.MatchString(line) {
			continue
		}
		line = prompt.ReplaceAllString(line, "")
		for strings.HasSuffix(line, `\`) && i+1 < len(b.Lines) {
			i++
			line = strings.TrimSuffix(line, `\`) + strings.TrimLeft(b.Lines[i], " ")
		}
		if here := hereDocument.FindStringSubmatch(line); here != nil {
			for done := false; !done && i+1 < len(b.Lines); {
				i++
				line += "\n" + b.Lines[i]
				done = b.Lines[i] == here[1]
			}
		}
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			all = append(all, Line{Number: number, Text: line})
		}
	}
	return all
}

var hereDocument = regexp.MustCompile(`<<'?([A-Z]+)'?$`)
