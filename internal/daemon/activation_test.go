package daemon

import (
	"net/netip"
	"testing"
)

func TestWhichSocketIsChosen(t *testing.T) {
	all := func(texts ...string) (list []passed) {
		for i := 0; i < len(texts); i += 2 {
			list = append(list, passed{name: texts[i], addr: netip.MustParseAddrPort(texts[i+1])})
		}
		return list
	}
	for _, c := range []struct {
		all     []passed
		key, at string
		want    int
	}{
		{all("listen", "0.0.0.0:443"), "listen", "0.0.0.0:443", 0},
		{all("listen", "[::]:443"), "listen", "0.0.0.0:443", 0},
		{all("listen", "10.1.0.1:443"), "listen", "[::]:443", 0},
		{all("listen", "10.1.0.1:443"), "listen", "10.1.0.2:443", -1},
		{all("listen", "[::ffff:10.1.0.1]:443"), "listen", "10.1.0.1:443", 0},
		{all("listen", "0.0.0.0:444"), "listen", "0.0.0.0:443", -1},
		{all("listen", "0.0.0.0:444"), "listen", "0.0.0.0:0", 0},
		{all("data_listen", "0.0.0.0:443"), "listen", "0.0.0.0:443", -1},
		{all("listen", "0.0.0.0:80", "listen", "[::]:443", "listen", "10.1.0.1:443"), "listen", "10.1.0.1:443", 2},
		{all("listen", "0.0.0.0:80", "listen", "[::]:443"), "listen", "10.1.0.1:443", 1},
		{nil, "listen", "10.1.0.1:443", -1},
	} {
		if got := chosen(c.all, c.key, netip.MustParseAddrPort(c.at)); got != c.want {
			t.Errorf("%v for %s %s: %d, want %d", c.all, c.key, c.at, got, c.want)
		}
	}
}
