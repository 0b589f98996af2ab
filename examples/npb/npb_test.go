package npb

import (
	"math"
	"strings"
	"testing"
)

func TestNewCheck(t *testing.T) {
	tests := []struct {
		got, want, tolerance float64
		ok                   bool
	}{
		{18, 18, 0, true},
		{19, 18, 0, false},
		{0, 0, 0, true},
		{-100 - 1e-7, -100, 1e-8, true},
		{-100 - 1e-5, -100, 1e-8, false},
		{math.NaN(), 1, 1e-8, false},
		{math.Inf(1), 1, 1e-8, false},
	}
	for _, tt := range tests {
		if c := NewCheck("x", tt.got, tt.want, tt.tolerance); c.OK != tt.ok {
			t.Errorf("%v against %v within %v: %v", tt.got, tt.want, tt.tolerance, c.OK)
		}
	}
}

func TestVerify(t *testing.T) {
	good, bad := NewCheck("good", 1, 1, 0), NewCheck("bad", 1, 2, 0)
	for _, tt := range []struct {
		checks   []Check
		verified bool
	}{{nil, false}, {[]Check{good}, true}, {[]Check{good, bad}, false}, {[]Check{bad, good}, false}} {
		var r Result
		if r.Verify(tt.checks); r.Verified != tt.verified {
			t.Errorf("%v: verified %v", tt.checks, r.Verified)
		}
	}
}

func TestReport(t *testing.T) {
	r := Result{Kernel: "IS", Class: "S", Size: "65536 keys", Ranks: 4, Iterations: 10, Seconds: 0.5, Mops: 1.25}
	var checks []Check
	for range 6 {
		checks = append(checks, NewCheck("fine", 1, 1, 0))
	}
	r.Verify(append(checks, NewCheck("rank of key 2", 7, 8, 0)))
	var b strings.Builder
	if _, err := r.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		" rank of key 2                  7, official 8: wrong\n",
		" 6 of 7 check values are right\n",
		" Verification     =             UNSUCCESSFUL\n",
		" Time in seconds  =                     0.50\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "fine") {
		t.Error("more right checks than a reader wants")
	}
	r.Verify(checks)
	b.Reset()
	r.WriteTo(&b)
	if want := " Verification     =               SUCCESSFUL\n"; !strings.Contains(b.String(), want) {
		t.Errorf("no %q in\n%s", want, b.String())
	}
}
