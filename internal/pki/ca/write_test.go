package ca

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
)

// Whoever reads the CA's certificate finds it whole, also while other certificates are issued into
// the folder.
func TestIssuedFilesAreWhole(t *testing.T) {
	a, _, err := New("grid", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	issue := func(i int) {
		if _, err := a.Write(dir, control.Identity{Role: control.RoleHelper, Site: "sitea", Name: fmt.Sprintf("n%d", i)}, time.Now().Add(time.Hour)); err != nil {
			t.Error(err)
		}
	}
	issue(0)
	var writers sync.WaitGroup
	writers.Go(func() {
		for i := range 30 {
			issue(i)
		}
	})
	done := make(chan struct{})
	go func() {
		writers.Wait()
		close(done)
	}()
	defer writers.Wait()
	for reading := true; reading; {
		select {
		case <-done:
			reading = false
		default:
		}
		if text, err := os.ReadFile(filepath.Join(dir, CertFile)); err != nil || !bytes.Equal(text, a.certPEM) {
			t.Fatalf("read %d bytes, %v; want the %d of the certificate", len(text), err, len(a.certPEM))
		}
	}
}
