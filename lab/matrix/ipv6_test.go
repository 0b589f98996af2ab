package matrix

import (
	"testing"

	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/lab/oracle"
)

// A preset has IPv6 for the lab and for the measurements alike.
func TestHasIPv6(t *testing.T) {
	for _, p := range lab.Presets() {
		if _, err := oracle.OverIPv6(p, p); (err == nil) != HasIPv6(p) {
			t.Errorf("%s has IPv6: %v, but %v", p, HasIPv6(p), err)
		}
	}
}

func TestCounter(t *testing.T) {
	const table = "Ip: Forwarding InReceives OutRequests\nIp: 1 25 17\nIcmp: InMsgs\nIcmp: 3\nTcp: A B\nTcp: 1\n"
	if n, err := counter(table, "Ip:", "OutRequests"); n != 17 || err != nil {
		t.Errorf("%d, %v; want 17", n, err)
	}
	for _, missing := range [][2]string{{"Icmp:", "OutRequests"}, {"Udp:", "OutRequests"}, {"Tcp:", "B"}} {
		if n, err := counter(table, missing[0], missing[1]); err == nil {
			t.Errorf("%v: %d", missing, n)
		}
	}
}
