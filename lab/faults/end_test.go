package faults

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
)

// An end without a helper reports that, and one whose orders end exits.
func TestEndWithoutGrid(t *testing.T) {
	key, err := jobkey.New("break")
	if err != nil {
		t.Fatal(err)
	}
	in, orders := io.Pipe()
	reports, out := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- RunEnd(context.Background(), in, out); out.Close() }()
	go json.NewEncoder(orders).Encode(order{Start: &role{Socket: t.TempDir() + "/none.sock", Key: key.String()}})
	d := json.NewDecoder(reports)
	var r report
	for range 3 {
		if err := d.Decode(&r); err != nil || r.Linked || r.Final != nil || r.At.IsZero() {
			t.Fatalf("report %+v (%v)", r, err)
		}
	}
	orders.Close()
	for r.Error == "" {
		if err := d.Decode(&r); err != nil {
			t.Fatal(err)
		}
	}
	go io.Copy(io.Discard, reports)
	select {
	case err := <-done:
		if err == nil || !strings.Contains(err.Error(), "no more orders") {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("it does not end")
	}
}

func TestEndWithoutRole(t *testing.T) {
	for _, text := range []string{"", "{}", "rubbish", `{"start":{"key":"rubbish"}}`} {
		if err := RunEnd(context.Background(), strings.NewReader(text), io.Discard); err == nil {
			t.Errorf("%q makes an end", text)
		}
	}
}
