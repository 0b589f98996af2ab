package main

import (
	"math"
	"os"
	"strings"
	"testing"
)

// TestDocs: docs/aiac.md shows the program as it is.
func TestDocs(t *testing.T) {
	program, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/aiac.md")
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ := strings.Cut(string(program), "package main\n")
	if !strings.Contains(string(page), code) {
		t.Error("the program of docs/aiac.md is another one")
	}
}

// TestPart: blocks alone, with their neighbours' values from the iteration before, converge to the solution.
func TestPart(t *testing.T) {
	r := rod{3}
	var parts []*part
	for i := range r.Tasks() {
		p, err := r.New(i)
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, p.(*part))
	}
	v := make([]float64, 1)
	for range 5000 {
		for to, p := range parts {
			for _, from := range r.Needs(to) {
				parts[from].Give(to, v)
				p.Take(from, v)
			}
			if err := p.Step(); err != nil {
				t.Fatal(err)
			}
		}
	}
	k, n := math.Acosh(2.001/2), float64(3*points+1)
	for i, p := range parts {
		other, _ := r.New(i)
		if err := other.Load(p.Save(nil)); err != nil {
			t.Fatal(err)
		}
		for at, u := range other.(*part).u[1 : points+1] {
			if want := math.Cosh(k*(float64(i*points+at+1)-n/2)) / math.Cosh(k*n/2); math.Abs(u-want) > 1e-6 {
				t.Fatalf("task %d, point %d: %g, want %g", i, at, u, want)
			}
		}
	}
}
