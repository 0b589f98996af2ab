package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestIndices(t *testing.T) {
	for _, want := range [][]int{nil, {0}, {3, 1, 4, 1 << 40}, {-1, -2}} {
		if got, err := ParseIndices(AppendIndices(want, nil)); err != nil || !slices.Equal(got, want) {
			t.Errorf("%v, %v, want %v", got, err, want)
		}
	}
	many := make([]int, MaxData)
	for i := range many {
		many[i] = i
	}
	data := AppendIndices(many, nil)
	got, err := ParseIndices(data)
	if err != nil || len(data) > MaxData || len(data) < MaxData-6 || !slices.Equal(got, many[:len(got)]) {
		t.Errorf("%d bytes for %d numbers: %v", len(data), len(got), err)
	}
	if _, err := ParseIndices(AppendIndices(many, errors.New("rank 3 is lost"))); err == nil || !strings.Contains(err.Error(), "found: rank 3 is lost") {
		t.Errorf("an error became %v", err)
	}
	for _, want := range []error{context.Canceled, context.DeadlineExceeded} {
		if _, err := ParseIndices(AppendIndices(many, fmt.Errorf("rank 3: %w", want))); !errors.Is(err, want) {
			t.Errorf("%v became %v", want, err)
		}
	}
	if data := AppendIndices(nil, errors.New(strings.Repeat("x", 2*MaxData))); len(data) != MaxData {
		t.Errorf("an error of %d bytes", len(data))
	}
	if _, err := ParseIndices("1 2 three "); err == nil {
		t.Error("no number is taken for one")
	}
}
