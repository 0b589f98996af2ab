package split

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/examples/multisplit/linear"
)

// twice is a system of two rows that has one element in two parts.
type twice struct{ Banded }

func (twice) Rows() int { return 2 }

func (twice) Block(lo, hi int) [][]linear.Entry {
	return [][]linear.Entry{{{Col: 0, Value: 2}}, {{Col: 0, Value: -.5}, {Col: 0, Value: -.5}, {Col: 1, Value: 4}}}[lo:hi]
}

func TestWritePETSc(t *testing.T) {
	var b bytes.Buffer
	if err := WritePETSc(&b, twice{}); err != nil {
		t.Fatal(err)
	}
	want := strings.ReplaceAll("00127b50 00000002 00000002 00000003 00000001 00000002 00000000 00000000 00000001 "+
		"4000000000000000 bff0000000000000 4010000000000000 00127b4e 00000002 4000000000000000 4008000000000000", " ", "")
	if got := hex.EncodeToString(b.Bytes()); got != want {
		t.Errorf("got\n%s, want\n%s", got, want)
	}
	if err := WritePETSc(brokenWriter{}, twice{}); !errors.Is(err, errBroken) {
		t.Errorf("got %v", err)
	}
}

var errBroken = errors.New("broken")

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errBroken }
