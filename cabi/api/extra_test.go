package api

import "testing"

// Functions that only MPICH has are not in the standard's table, and what they are other names of is.
func TestExtras(t *testing.T) {
	standard := map[string]bool{}
	for _, f := range Functions() {
		standard[f.Name] = true
	}
	seen := map[string]bool{}
	for _, f := range Extras() {
		if seen[f.Name] || standard[f.Name] {
			t.Errorf("%s is there twice", f.Name)
		}
		seen[f.Name] = true
		if f.Same != "" && !standard[f.Same] {
			t.Errorf("%s is %s, which there is not", f.Name, f.Same)
		}
	}
	if len(seen) < 30 {
		t.Errorf("%d functions", len(seen))
	}
}
