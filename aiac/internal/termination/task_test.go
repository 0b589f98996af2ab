package termination

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/aiac/internal/register"
)

// describe writes down what an owner is to do.
func describe(out Out) string {
	var all []string
	if out.Store {
		all = append(all, "store")
	}
	if out.Freeze {
		all = append(all, "freeze")
	}
	for _, e := range out.Send {
		m := e.Message
		text := m.Kind.String()
		switch m.Kind {
		case Ready:
			text = map[bool]string{true: "ready", false: "unready"}[m.Ready]
		case Part, Done:
			text += fmt.Sprintf(" %g", m.Residual)
		}
		if m.Kind != News {
			text += fmt.Sprintf(" #%d", m.Round)
		}
		all = append(all, fmt.Sprintf("%s>%d", text, e.Process))
	}
	if out.Measure.Round > 0 {
		all = append(all, "measure")
	}
	if out.Result != nil {
		all = append(all, fmt.Sprintf("result %g copy:%v", out.Result.Residual, out.Result.HasCopy))
	}
	return strings.Join(all, ", ")
}

func expect(t *testing.T, what string, out Out, want string) {
	t.Helper()
	if got := describe(out); got != want {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// chain is the configuration of a task of three in a chain of blocks, 0-1-2, at three sites.
func chain(task int) Config {
	needs := [][]int{{1}, {0, 2}, {1}}[task]
	return Config{Task: task, Tree: NewTree([]string{"a", "b", "c"}), Needs: needs, Feeds: needs, Hold: 2, Tolerance: 1}
}

// makeReady makes the task ready, so that its next iteration reports it.
func makeReady(task *Task, holds int) {
	for range holds {
		task.Iterated(true)
	}
	for _, from := range task.config.Needs {
		task.Heard(from)
	}
}

func TestReadiness(t *testing.T) {
	for _, c := range []struct {
		name   string
		events string // i: an iteration that holds; x: one that does not; 0, 2: a value of that task
		want   string // what it tells its parent; + ready, - no longer
	}{
		{"too few iterations", "i02i", ""},
		{"no news", "iiiiii", ""},
		{"news of one neighbour", "i0iiii", ""},
		{"news from before", "02iiiii", ""},
		{"held, with news", "i02ii", "+"},
		{"news after some iterations", "iiii0i2i", "+"},
		{"more news", "i02ii02iii", "+"},
		{"another start", "i02ixii", ""},
		{"withdrawn", "i02iix", "+-"},
		{"and again", "i02iixi20ii", "+-+"},
		{"news of old do not count again", "i02iixiiii", "+-"},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := chain(1)
			config.Hold = 3
			task, _ := New(config, register.New(3))
			got := ""
			for _, e := range c.events {
				var out Out
				switch e {
				case 'i', 'x':
					out = task.Iterated(e == 'i')
				default:
					task.Heard(int(e - '0'))
				}
				switch describe(out) {
				case "ready #1>0":
					got += "+"
				case "unready #1>0":
					got += "-"
				case "":
				default:
					t.Errorf("unexpected: %s", describe(out))
				}
			}
			if got != c.want {
				t.Errorf("%s: %q, want %q", c.events, got, c.want)
			}
		})
	}
}

// receive delivers a message of a process.
func receive(t *testing.T, task *Task, from uint32, m Message) Out {
	t.Helper()
	out, err := task.Receive(from, m)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// A wave at each place of the tree: begun by the root; entered by Freeze, Block or Part; ended by both
// answers.
func TestWave(t *testing.T) {
	r := register.New(3)
	root, _ := New(chain(0), r)
	receive(t, root, 1, Message{Kind: Ready, View: r, Round: 1, Ready: true})
	makeReady(root, 1)
	expect(t, "root, with one child ready", root.Iterated(true), "")
	expect(t, "root", receive(t, root, 2, Message{Kind: Ready, View: r, Round: 1, Ready: true}), "freeze, freeze #1>1, freeze #1>2, block #1>1")
	expect(t, "root, late withdrawal", receive(t, root, 1, Message{Kind: Ready, View: r, Round: 1}), "")
	expect(t, "root, part", receive(t, root, 1, Message{Kind: Part, View: r, Round: 1, Residual: 3}), "")
	expect(t, "root, block", receive(t, root, 1, Message{Kind: Block, View: r, Round: 1}), "store, measure")
	expect(t, "root, own part", root.Measured(Wave{r, 1}, .5), "")
	expect(t, "root, last part", receive(t, root, 2, Message{Kind: Part, View: r, Round: 1, Residual: .25}), "resume #1>1, resume #1>2")
	expect(t, "root, anew", root.Iterated(true), "")

	leaf, _ := New(chain(2), r)
	makeReady(leaf, 1)
	expect(t, "leaf", leaf.Iterated(true), "ready #1>0")
	expect(t, "leaf, block before freeze", receive(t, leaf, 1, Message{Kind: Block, View: r, Round: 1}), "store, freeze, block #1>1, measure")
	expect(t, "leaf, freeze", receive(t, leaf, 0, Message{Kind: Freeze, View: r, Round: 1}), "")
	expect(t, "leaf, no longer converged", leaf.Iterated(false), "")
	expect(t, "leaf, part", leaf.Measured(Wave{r, 1}, .25), "part 0.25 #1>0")
	expect(t, "leaf, resume", receive(t, leaf, 0, Message{Kind: Resume, View: r, Round: 1}), "")
	makeReady(leaf, 1)
	expect(t, "leaf, ready again", leaf.Iterated(true), "ready #2>0")
	expect(t, "leaf, freeze 2", receive(t, leaf, 0, Message{Kind: Freeze, View: r, Round: 2}), "freeze, block #2>1")
	expect(t, "leaf, block 2", receive(t, leaf, 1, Message{Kind: Block, View: r, Round: 2}), "store, measure")
	expect(t, "leaf, measured too late", leaf.Measured(Wave{r, 1}, .25), "")
	expect(t, "leaf, done", receive(t, leaf, 0, Message{Kind: Done, View: r, Round: 2, Decided: r, Residual: .1}), "result 0.1 copy:true")
	expect(t, "leaf, to one that does not know", receive(t, leaf, 1, Message{Kind: News, View: r}), "done 0.1 #2>1")
}

func TestNorms(t *testing.T) {
	for _, c := range []struct {
		norm Norm
		want string
	}{{Max, "result 0.8 copy:true"}, {Euclidean, "result 1 copy:true"}} {
		config := Config{Tree: NewTree([]string{"a", "a"}), Hold: 1, Tolerance: 1, Norm: c.norm}
		r := register.New(2)
		root, _ := New(config, r)
		root.Iterated(true)
		receive(t, root, 1, Message{Kind: Ready, View: r, Round: 1, Ready: true})
		root.Measured(Wave{r, 1}, map[Norm]float64{Max: .6, Euclidean: .36}[c.norm])
		out := receive(t, root, 1, Message{Kind: Part, View: r, Round: 1, Residual: map[Norm]float64{Max: .8, Euclidean: .64}[c.norm]})
		if got := describe(out); !strings.HasSuffix(got, c.want) {
			t.Errorf("norm %d: %s, want %s", c.norm, got, c.want)
		}
	}
}

// A residual that is no number is never small enough.
func TestNotANumber(t *testing.T) {
	for _, norm := range []Norm{Max, Euclidean} {
		root, _ := New(Config{Tree: NewTree([]string{"a"}), Hold: 1, Tolerance: 1, Norm: norm}, register.New(1))
		expect(t, "one task", root.Iterated(true), "freeze, measure")
		zero := 0.0
		expect(t, "not a number", root.Measured(Wave{register.New(1), 1}, zero/zero), "")
		if root.isDecided() {
			t.Error("it is taken for a result")
		}
	}
}

// Whoever learns of a loss forgets the wave, also when nobody has said so, and takes part in none
// until all tasks have a process.
func TestLossCancelsWave(t *testing.T) {
	r := register.New(3)
	leaf, _ := New(chain(2), r)
	makeReady(leaf, 1)
	leaf.Iterated(true)
	receive(t, leaf, 0, Message{Kind: Freeze, View: r, Round: 1})
	lost := r.Lost(1, 1)
	out, err := leaf.Update(lost)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "loss", out, "news>0")
	expect(t, "block of the lost", receive(t, leaf, 1, Message{Kind: Block, View: r, Round: 1}), "")
	expect(t, "freeze of one that does not know", receive(t, leaf, 0, Message{Kind: Freeze, View: r, Round: 1}), "news>0")
	makeReady(leaf, 1)
	expect(t, "nobody is ready without task 1", leaf.Iterated(true), "")
	whole := lost.Replaced(1, 3)
	expect(t, "its replacement", receive(t, leaf, 3, Message{Kind: News, View: whole}), "news>0")
	expect(t, "what held before", leaf.Iterated(true), "")
	leaf.Heard(1)
	expect(t, "ready", leaf.Iterated(true), "ready #1>0")
	expect(t, "freeze", receive(t, leaf, 0, Message{Kind: Freeze, View: whole, Round: 1}), "freeze, block #1>3")
	expect(t, "measured too late", leaf.Measured(Wave{r, 1}, 0), "")

	_, out = New(chain(1), whole)
	expect(t, "the replacement begins", out, "news>0, news>2")
	if _, err := leaf.Update(whole.Lost(2, 2)); !errors.Is(err, ErrExpelled) {
		t.Errorf("a process that is held for lost: %v", err)
	}
}

func TestReceiveRefuses(t *testing.T) {
	r := register.New(4)
	tree := NewTree([]string{"a", "b", "b", "a"})
	for _, c := range []struct {
		from uint32
		m    Message
		want error
	}{
		{0, Message{Kind: Ready, Round: 1}, errStranger}, // the parent
		{2, Message{Kind: Freeze, Round: 1}, errStranger},
		{0, Message{Kind: Part, Round: 1}, errStranger},
		{2, Message{Kind: Block, Round: 1}, errStranger}, // no neighbour
		{0, Message{Kind: Freeze, Round: 2}, errRound},
		{0, Message{Kind: Resume, Round: 1}, errRound},
		{2, Message{Kind: Ready, Round: 2}, errRound},
		{2, Message{Kind: Part, Round: 2}, errRound},
		{3, Message{Kind: Block, Round: 0}, errRound},
		{3, Message{Kind: 99}, errKind},
	} {
		task, _ := New(Config{Task: 1, Tree: tree, Needs: []int{3}, Hold: 1}, r)
		c.m.View = r
		if _, err := task.Receive(c.from, c.m); !errors.Is(err, c.want) {
			t.Errorf("%v of wave %d from %d: %v, want %v", c.m.Kind, c.m.Round, c.from, err, c.want)
		}
	}
	task, _ := New(Config{Task: 1, Tree: tree, Needs: []int{3}, Hold: 1}, r)
	block := Message{Kind: Block, View: r, Round: 1}
	receive(t, task, 3, block)
	if _, err := task.Receive(3, block); !errors.Is(err, errAgain) {
		t.Errorf("a second block: %v", err)
	}
	part := Message{Kind: Part, View: r, Round: 1}
	receive(t, task, 2, part)
	if _, err := task.Receive(2, part); !errors.Is(err, errAgain) {
		t.Errorf("a second part: %v", err)
	}
	for _, from := range []uint32{1, 7} {
		if _, err := task.Receive(from, Message{Kind: News, View: r}); err == nil {
			t.Errorf("process %d may send", from)
		}
	}
}
