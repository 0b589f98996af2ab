package lab

import (
	"context"
	"os"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	Main()
	os.Exit(m.Run())
}

// up builds spec for one test.
func up(t *testing.T, spec Spec) *Lab {
	t.Helper()
	start := time.Now()
	l, err := Up(context.Background(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("lab up in %v", time.Since(start))
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("lab: %v", err)
		}
	})
	return l
}
