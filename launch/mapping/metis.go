package mapping

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// The limits of a graph file.
const (
	MaxTasks    = 1 << 20
	MaxEdges    = 1 << 24
	MaxLineSize = 16 << 20 // bytes
)

// A ParseError is what is wrong in a line of a graph file.
type ParseError struct {
	Line int // from 1
	Err  error
}

// Error names the line.
func (e *ParseError) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }

// Unwrap returns what is wrong.
func (e *ParseError) Unwrap() error { return e.Err }

// metisReader reads a file of METIS' format for graphs (METIS manual, section 4.1).
type metisReader struct {
	lines *bufio.Scanner
	line  int

	tasks, edges int
	sizes, costs bool // whether a line of a task begins with a size; a weight
	weights      bool // whether the edges have weights
	graph        *Graph
	at           []int // by task: its line
	read         int   // ends of edges read
}

// ReadMETIS reads a graph in METIS' format: a line with the numbers of vertices and edges and a code of
// three digits for what has weights, and then a line for each vertex with its neighbours. A vertex is a
// task, its weight the task's cost, and an edge's weight how many messages an iteration sends; both are 1
// where the file has none. Vertex sizes are skipped: they are data to move, and no task moves. An error
// about a line is a [*ParseError].
func ReadMETIS(r io.Reader) (*Graph, error) {
	m := &metisReader{lines: bufio.NewScanner(r)}
	m.lines.Buffer(nil, MaxLineSize)
	err := m.readHeader()
	for task := 0; err == nil && task < m.tasks; task++ {
		err = m.readTask(task)
	}
	if err == nil {
		err = m.readEnd()
	}
	if err != nil {
		return nil, err
	}
	if err := m.check(); err != nil {
		return nil, err
	}
	return m.graph, nil
}

// fail returns an error about the current line.
func (m *metisReader) fail(format string, args ...any) error {
	return &ParseError{m.line, fmt.Errorf(format, args...)}
}

// next returns the fields of the next line that is no comment, or false at the end.
func (m *metisReader) next() (fields []string, ok bool, err error) {
	for m.lines.Scan() {
		m.line++
		if line := m.lines.Text(); !strings.HasPrefix(line, "%") {
			return strings.Fields(line), true, nil
		}
	}
	err = m.lines.Err()
	if errors.Is(err, bufio.ErrTooLong) {
		m.line++
		return nil, false, m.fail("longer than %d bytes", MaxLineSize)
	}
	return nil, false, err
}

func (m *metisReader) readHeader() error {
	fields, ok, err := m.next()
	switch {
	case err != nil:
		return err
	case !ok:
		return errors.New("no graph: the file is empty")
	case len(fields) < 2 || len(fields) > 4:
		return m.fail("%d fields: the first line has the numbers of vertices and edges, and perhaps a format and a number of weights", len(fields))
	}
	if m.tasks, err = m.number(fields[0], 1, MaxTasks, "a number of vertices"); err != nil {
		return err
	}
	if m.edges, err = m.number(fields[1], 0, MaxEdges, "a number of edges"); err != nil {
		return err
	}
	if len(fields) > 2 {
		if err := m.readFormat(fields[2]); err != nil {
			return err
		}
	}
	if len(fields) > 3 && fields[3] != "1" || len(fields) > 3 && !m.costs {
		return m.fail("%.20q weights for each vertex: one at most is supported, if the format says so", fields[3])
	}
	m.graph = &Graph{make([]float64, m.tasks), make([][]Edge, m.tasks)}
	m.at = make([]int, m.tasks)
	return nil
}

// readFormat reads the code of what the file has: sizes of vertices, their weights, those of edges.
func (m *metisReader) readFormat(code string) error {
	padded := strings.Repeat("0", max(0, 3-len(code))) + code
	if len(code) > 3 || strings.Trim(code, "01") != "" {
		return m.fail("format %.20q: want up to three digits, each 0 or 1", code)
	}
	m.sizes, m.costs, m.weights = padded[0] == '1', padded[1] == '1', padded[2] == '1'
	return nil
}

// number reads a whole number.
func (m *metisReader) number(text string, least, most int, what string) (int, error) {
	v, err := strconv.Atoi(text)
	if err != nil || v < least || v > most {
		return 0, m.fail("%.20q is not %s: want %d to %d", text, what, least, most)
	}
	return v, nil
}

// maxWeight keeps sums of weights exact.
const maxWeight = 1 << 31

func (m *metisReader) readTask(task int) error {
	fields, ok, err := m.next()
	switch {
	case err != nil:
		return err
	case !ok:
		return m.fail("the file ends after %d of %d vertices", task, m.tasks)
	}
	m.at[task] = m.line
	if m.sizes {
		if len(fields) == 0 {
			return m.fail("vertex %d has no size", task+1)
		}
		if _, err := m.number(fields[0], 0, maxWeight, "a size"); err != nil {
			return err
		}
		fields = fields[1:]
	}
	m.graph.Cost[task] = 1
	if m.costs {
		if len(fields) == 0 {
			return m.fail("vertex %d has no weight", task+1)
		}
		cost, err := m.number(fields[0], 0, maxWeight, "a weight")
		if err != nil {
			return err
		}
		m.graph.Cost[task], fields = float64(cost), fields[1:]
	}
	return m.readEdges(task, fields)
}

func (m *metisReader) readEdges(task int, fields []string) error {
	step := 1
	if m.weights {
		step = 2
	}
	if len(fields)%step != 0 {
		return m.fail("the last neighbour of vertex %d has no weight", task+1)
	}
	if m.read += len(fields) / step; m.read > 2*m.edges {
		return m.fail("vertex %d is the end of an edge too many: the first line says %d edges", task+1, m.edges)
	}
	for i := 0; i < len(fields); i += step {
		to, err := m.number(fields[i], 1, m.tasks, "a vertex")
		if err != nil {
			return err
		}
		weight := 1
		if m.weights {
			if weight, err = m.number(fields[i+1], 1, maxWeight, "the weight of an edge"); err != nil {
				return err
			}
		}
		if to-1 == task {
			return m.fail("vertex %d is its own neighbour", to)
		}
		m.graph.Edges[task] = append(m.graph.Edges[task], Edge{to - 1, float64(weight)})
	}
	return m.sortEdges(task)
}

// sortEdges sorts the edges of a task by neighbour.
func (m *metisReader) sortEdges(task int) error {
	edges := m.graph.Edges[task]
	slices.SortFunc(edges, func(a, b Edge) int { return cmp.Compare(a.Task, b.Task) })
	for i := range edges {
		if i > 0 && edges[i].Task == edges[i-1].Task {
			return m.fail("vertex %d has neighbour %d twice", task+1, edges[i].Task+1)
		}
	}
	return nil
}

// readEnd returns an error if anything but empty lines follows.
func (m *metisReader) readEnd() error {
	for {
		fields, ok, err := m.next()
		if err != nil || !ok {
			return err
		}
		if len(fields) > 0 {
			return m.fail("there are more than %d vertices", m.tasks)
		}
	}
}

// check returns an error unless every edge is at both its ends.
func (m *metisReader) check() error {
	for task, edges := range m.graph.Edges {
		for _, e := range edges {
			back := m.graph.Edges[e.Task]
			i, ok := slices.BinarySearchFunc(back, task, func(b Edge, t int) int { return cmp.Compare(b.Task, t) })
			if !ok || back[i].Weight != e.Weight {
				m.line = m.at[task]
				return m.fail("vertex %d has neighbour %d with weight %g, but not the other way round: see line %d", task+1, e.Task+1, e.Weight, m.at[e.Task])
			}
		}
	}
	if m.read != 2*m.edges {
		m.line = 1
		return m.fail("the first line says %d edges, there are %d", m.edges, m.read/2)
	}
	return nil
}
