package doctor

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// The page for admins lists every class with its exit status.
func TestPageHasEveryClass(t *testing.T) {
	page, err := os.ReadFile("../../../docs/doctor.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range ClassTable() {
		if row := fmt.Sprintf("| %d | %s | %s |\n", c.Exit, c.Class, c.What); !strings.Contains(string(page), row) {
			t.Errorf("the page has no row %q", row)
		}
	}
}
