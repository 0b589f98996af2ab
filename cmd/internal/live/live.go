// Package live shows texts that are asked for again and again in a terminal, below each other.
package live

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
	"github.com/isthmus-grid/isthmus/internal/printable"
)

// Section is a part of the picture.
type Section struct {
	Title string
	// Ask returns the text, of any number of lines. It must end with its context. One call of it at a time
	// is made, besides those of other sections. An error is shown as if it had ended a command.
	Ask func(context.Context) (string, error)
}

// Once writes the sections' texts, each below its title. If all questions fail it writes nothing, and
// returns the first one's error.
func Once(ctx context.Context, w io.Writer, sections []Section) error {
	m := newModel(sections, 0)
	answers := make([]answer, len(sections))
	var asking sync.WaitGroup
	for i := range sections {
		asking.Go(func() { answers[i] = ask(ctx, sections[i], i) })
	}
	asking.Wait()
	var failed []error
	for _, a := range answers {
		if m = m.take(a); a.err != nil {
			failed = append(failed, a.err)
		}
	}
	if len(failed) == len(sections) {
		return failed[0]
	}
	for _, line := range m.body(time.Now()) {
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}

// Run shows the sections in the terminal until the user or ctx ends it, and asks for each again when every
// has passed since its last answer. in and out are the terminal's.
func Run(ctx context.Context, in io.Reader, out io.Writer, every time.Duration, sections []Section) error {
	m := newModel(sections, every)
	m.ctx = ctx
	_, err := tea.NewProgram(m, tea.WithInput(in), tea.WithOutput(out), tea.WithContext(ctx)).Run()
	if ctx.Err() != nil {
		return nil // a signal, which is how it may be ended
	}
	return err
}

// answer is what a section has said.
type answer struct {
	section int
	text    string
	err     error
	at      time.Time
}

// again is the time to ask for a section again.
type again int

// shown is a section's last text and what became of the last question.
type shown struct {
	text string
	at   time.Time // of the text; zero: there is none
	err  error     // of the last question; nil: it brought the text
}

// model is the state of the picture. It implements tea.Model, whose calls come from one goroutine.
type model struct {
	ctx      context.Context
	sections []Section
	every    time.Duration
	shown    []shown

	width, height int // of the terminal; 0: not known
	top           int // the first line of the body that is visible
	paused        bool
	waiting       []int // sections to ask for when the pause ends
}

func newModel(sections []Section, every time.Duration) model {
	return model{ctx: context.Background(), sections: sections, every: every, shown: make([]shown, len(sections))}
}

func ask(ctx context.Context, s Section, i int) answer {
	text, err := s.Ask(ctx)
	return answer{i, text, err, time.Now()}
}

// ask returns the command that asks for a section.
func (m model) ask(i int) tea.Cmd {
	return func() tea.Msg { return ask(m.ctx, m.sections[i], i) }
}

// Init implements tea.Model.
func (m model) Init() tea.Cmd {
	var all []tea.Cmd
	for i := range m.sections {
		all = append(all, m.ask(i))
	}
	return tea.Batch(all...)
}

// Update implements tea.Model.
func (m model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
		return m.scroll(0), nil
	case answer:
		return m.take(msg).scroll(0), tea.Tick(m.every, func(time.Time) tea.Msg { return again(msg.section) })
	case again:
		if m.paused {
			m.waiting = append(m.waiting, int(msg))
			return m, nil
		}
		return m, m.ask(int(msg))
	case tea.KeyPressMsg:
		return m.key(msg.String())
	}
	return m, nil
}

// key handles a key.
func (m model) key(name string) (model, tea.Cmd) {
	switch name {
	case "q", "ctrl+c", "esc":
		return m, tea.Quit
	case "up", "k":
		return m.scroll(-1), nil
	case "down", "j":
		return m.scroll(1), nil
	case "pgup":
		return m.scroll(-m.room()), nil
	case "pgdown", "space":
		return m.scroll(m.room()), nil
	case "home", "g":
		return m.scroll(-m.top), nil
	case "p":
		m.paused = !m.paused
		var all []tea.Cmd
		for _, i := range m.waiting {
			all = append(all, m.ask(i))
		}
		m.waiting = nil
		return m, tea.Batch(all...)
	}
	return m, nil
}

// take keeps an answer.
func (m model) take(a answer) model {
	m.shown = append([]shown(nil), m.shown...)
	s := &m.shown[a.section]
	if s.err = a.err; a.err == nil {
		s.text, s.at = printable.Lines(a.text), a.at
	}
	return m
}

// errorText returns an error as a command prints it that it ends.
func errorText(err error) string {
	text := err.Error()
	if f, is := errors.AsType[*cmdline.Failure](err); is {
		var b strings.Builder
		f.Print(&b, "isthmus")
		text = b.String()
	}
	return printable.Lines(strings.TrimRight(text, "\n"))
}

// room is how many lines of the body are visible.
func (m model) room() int { return max(1, m.height-1) }

// scroll moves the picture by n lines, within its bounds.
func (m model) scroll(n int) model {
	m.top = max(0, min(m.top+n, len(m.body(time.Now()))-m.room()))
	return m
}

// body returns all lines of the sections.
func (m model) body(now time.Time) (lines []string) {
	for i, s := range m.shown {
		if i > 0 {
			lines = append(lines, "")
		}
		title := m.sections[i].Title
		switch {
		case s.err != nil && !s.at.IsZero():
			title += fmt.Sprintf(", as of %v ago", now.Sub(s.at).Round(time.Second))
		case s.err == nil && s.at.IsZero():
			title += ": asking"
		}
		lines = append(lines, "== "+title)
		if s.err != nil {
			lines = append(lines, "! "+strings.ReplaceAll(errorText(s.err), "\n", "\n! "))
		}
		if text := strings.TrimRight(s.text, "\n"); text != "" {
			lines = append(lines, text)
		}
	}
	return strings.Split(strings.Join(lines, "\n"), "\n")
}

// View implements tea.Model.
func (m model) View() tea.View {
	v := tea.NewView(m.picture())
	v.AltScreen = true
	return v
}

// picture returns what the terminal shows.
func (m model) picture() string {
	if m.height == 0 {
		return ""
	}
	now := time.Now()
	lines := m.body(now)
	end := min(len(lines), m.top+m.room())
	head := fmt.Sprintf("isthmus  %s  every %v  lines %d to %d of %d  q ends, p pauses, arrows scroll", now.Format(time.TimeOnly), m.every, m.top+1, end, len(lines))
	if m.paused {
		head = "PAUSED  " + head
	}
	var b strings.Builder
	b.WriteString(reverse(ansi.Truncate(head, m.width, "")))
	for _, line := range lines[m.top:end] {
		b.WriteString("\n" + colour(ansi.Truncate(line, m.width, "…")))
	}
	return b.String()
}

func reverse(s string) string { return "\x1b[7m" + s + cmdline.Reset }

// colour makes states, faults and titles stand out.
func colour(line string) string {
	switch {
	case strings.HasPrefix(line, "== "):
		return "\x1b[1m" + line + cmdline.Reset
	case strings.HasPrefix(line, "! "):
		return cmdline.Red + line + cmdline.Reset
	}
	return cmdline.Colour(line)
}
