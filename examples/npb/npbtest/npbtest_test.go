package npbtest

import (
	"testing"

	"github.com/isthmus-grid/isthmus/examples/npb"
)

func TestJudge(t *testing.T) {
	right := npb.Result{Class: "S", Ranks: 2, Verified: true, Checks: make([]npb.Check, 3)}
	if err := judge(right, "S", 2, 3); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(*npb.Result){
		"class":  func(r *npb.Result) { r.Class = "W" },
		"ranks":  func(r *npb.Result) { r.Ranks = 1 },
		"checks": func(r *npb.Result) { r.Checks = r.Checks[:2] },
		"value":  func(r *npb.Result) { r.Verified = false },
	} {
		r := right
		if spoil(&r); judge(r, "S", 2, 3) == nil {
			t.Errorf("another %s is not seen", name)
		}
	}
}
