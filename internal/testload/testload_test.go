package testload

import (
	"testing"
	"time"
)

func TestWithin(t *testing.T) {
	if got := Within(time.Second); got < time.Second {
		t.Errorf("a second became %v", got)
	}
	if Again(2) {
		t.Error("a measurement is repeated a third time")
	}
}
