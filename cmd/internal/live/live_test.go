package live

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
)

// key returns the message of a key.
func key(name string) tea.KeyPressMsg {
	switch name {
	case "up":
		return tea.KeyPressMsg{Code: tea.KeyUp}
	case "down":
		return tea.KeyPressMsg{Code: tea.KeyDown}
	case "space":
		return tea.KeyPressMsg{Code: tea.KeySpace, Text: " "}
	}
	return tea.KeyPressMsg{Code: []rune(name)[0], Text: name}
}

// after returns the model after messages.
func after(m model, all ...tea.Msg) model {
	for _, msg := range all {
		next, _ := m.Update(msg)
		m = next.(model)
	}
	return m
}

// lines returns what the terminal shows, without colours.
func lines(m model) []string { return strings.Split(ansi.Strip(m.picture()), "\n") }

func numbers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "line %d\n", i)
	}
	return b.String()
}

func TestPicture(t *testing.T) {
	m := newModel([]Section{{Title: "hosts"}, {Title: "jobs"}}, time.Second)
	if m.picture() != "" {
		t.Error("drawn before the terminal's size is known")
	}
	m = after(m, tea.WindowSizeMsg{Width: 20, Height: 6}, answer{section: 0, text: numbers(3), at: time.Now()})
	if got := lines(m); len(got) != 6 || got[1] != "== hosts" || got[2] != "line 0" || got[5] != "" {
		t.Errorf("%q", got)
	}
	m = after(m, key("down"), key("down"), key("down"), key("down"), key("down"))
	if got := lines(m); got[5] != "== jobs: asking" || got[1] != "line 0" {
		t.Errorf("scrolled: %q", got)
	}
	if got := lines(after(m, key("up"), key("up"), key("up"), key("up"), key("space"))); got[1] != "line 0" {
		t.Errorf("a page: %q", got)
	}
	m = after(m, answer{section: 0, text: "n1\x1b[2J  up\n", at: time.Now()}) // shorter
	if got := lines(m); got[1] != "== hosts" || got[2] != `n1\x1b[2J  up` {
		t.Errorf("shorter: %q", got)
	}
	if view := m.picture(); !strings.Contains(view, cmdline.Green+"up"+cmdline.Reset) {
		t.Errorf("%q", view)
	}
	m = after(m, answer{section: 0, err: errors.New("hosts: nothing\n  next: look\x1b["), at: time.Now()})
	if got := strings.Join(lines(m), "\n"); !strings.Contains(got, "== hosts, as of 0s …\n! hosts: nothing\n!   next: look\\x1b[\nn1\\x1b[2J") {
		t.Errorf("%q", got)
	}
	for _, line := range lines(after(m, tea.WindowSizeMsg{Width: 10, Height: 20})) {
		if ansi.StringWidth(line) > 10 {
			t.Errorf("%q is wider than the terminal", line)
		}
	}
}

// A section is asked for again after each answer, but not while the picture is paused.
func TestAgain(t *testing.T) {
	asked := 0
	m := newModel([]Section{{Title: "x", Ask: func(context.Context) (string, error) { asked++; return "", nil }}}, time.Nanosecond)
	_, cmd := m.Update(answer{})
	if msg := cmd(); msg != again(0) {
		t.Fatalf("%T %v", msg, msg)
	}
	next, cmd := m.Update(again(0))
	if _, is := cmd().(answer); !is || asked != 1 {
		t.Errorf("asked %d times", asked)
	}
	m = after(next.(model), key("p"))
	next, cmd = m.Update(again(0))
	if cmd != nil || !strings.HasPrefix(lines(after(next.(model), tea.WindowSizeMsg{Width: 80, Height: 5}))[0], "PAUSED") {
		t.Error("not paused")
	}
	next, cmd = next.(model).Update(key("p"))
	if cmd == nil || len(next.(model).waiting) > 0 {
		t.Fatal("the pause does not end")
	}
	cmd()
	if _, cmd = next.(model).Update(key("q")); cmd == nil || cmd() != tea.Quit() {
		t.Error("q does not end it")
	}
}

// The program draws, and ends with its context or by q.
func TestRun(t *testing.T) {
	sections := []Section{{Title: "hosts", Ask: func(context.Context) (string, error) { return "n1 up\n", nil }}}
	in, keys := io.Pipe()
	var out bytes.Buffer
	over := make(chan error, 1)
	go func() { over <- Run(t.Context(), in, &out, time.Hour, sections) }()
	io.WriteString(keys, "q")
	if err := <-over; err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { over <- Run(ctx, in, io.Discard, time.Hour, sections) }()
	cancel()
	if err := <-over; err != nil {
		t.Error(err)
	}
}

func TestOnce(t *testing.T) {
	var out strings.Builder
	err := Once(t.Context(), &out, []Section{
		{Title: "hosts", Ask: func(context.Context) (string, error) { return "n1 up\n", nil }},
		{Title: "jobs", Ask: func(context.Context) (string, error) { return "", errors.New("ps: no helper") }},
	})
	if want := "== hosts\nn1 up\n\n== jobs\n! ps: no helper\n"; err != nil || out.String() != want {
		t.Errorf("%q, %v", out.String(), err)
	}
}

func TestOnceWithoutAnAnswer(t *testing.T) {
	var out strings.Builder
	away := &cmdline.Failure{Cause: "hosts: away", Next: "look"}
	sections := []Section{{Title: "hosts", Ask: func(context.Context) (string, error) { return "", away }}, {Title: "jobs", Ask: func(context.Context) (string, error) { return "", errors.New("ps: away") }}}
	if err := Once(t.Context(), &out, sections); err != away || out.Len() > 0 {
		t.Errorf("%v, %q", err, out.String())
	}
	if text := errorText(away); text != "isthmus: hosts: away\n  next:    look" {
		t.Errorf("%q", text)
	}
}
