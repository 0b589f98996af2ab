package probe

import (
	"net/netip"
	"testing"
)

// The findings for a path alone equal those from the same observations for a site.
func TestPathFindings(t *testing.T) {
	limited := RateStep{Rate: 1_000_000, Sent: 40, Answered: 20, Offered: 1_000_000, Delivered: 500_000}
	echoed := limited
	echoed.Echoed = true
	slow := RateStep{Rate: 250_000, Echoed: true, Sent: 20, Answered: 20, Offered: 250_000, Delivered: 250_000}
	for _, tc := range []struct {
		name      string
		path      PathReport
		mtu, rate string
		largest   int
		lost      bool
	}{
		{"narrow", PathReport{
			Sizes: &PathSizes{Interface: 1500, Passed: []int{1400, 1280}, Lost: []int{1500, 1420}},
			Rate:  []RateStep{slow, echoed, echoed, limited},
		}, "1400", "500000", 1400, true},
		{"a small one lost", PathReport{
			Sizes: &PathSizes{Interface: 1500, Passed: []int{1500, 1400}, Lost: []int{1280}},
			Rate:  []RateStep{{Rate: 1_000_000, Echoed: true, Sent: 40, Answered: 40, Offered: 1_000_000, Delivered: 1_000_000}},
		}, "none", "none", 1500, false},
		{"nothing came", PathReport{Sizes: &PathSizes{Lost: []int{1500}}, RateErr: "no socket"}, "", "", 0, false},
		{"not begun", PathReport{}, "", "", 0, false},
	} {
		tc.path.To = netip.MustParseAddrPort("203.0.113.2:3478")
		mtu, rate := tc.path.Findings()
		if mtu.Value != tc.mtu || rate.Value != tc.rate || mtu.How == "" || rate.How == "" || mtu.Field != MTU || rate.Field != UDPRate {
			t.Errorf("%s: %+v, %+v", tc.name, mtu, rate)
		}
		if size, lost := tc.path.Largest(); size != tc.largest || lost != tc.lost {
			t.Errorf("%s: largest %d, %v", tc.name, size, lost)
		}
	}
}
