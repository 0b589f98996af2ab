package carrier

import (
	"net/netip"
	"testing"
	"time"
)

func TestLossyPaths(t *testing.T) {
	path := func(i int) hostPair {
		return hostPair{netip.MustParseAddr("10.0.0.1"), netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})}
	}
	now := time.Unix(1000, 0)
	var l LossyPaths
	if l.lossy(path(1), now) {
		t.Error("a path is lossy before anything was found")
	}
	l.found(path(1), now)
	for _, tc := range []struct {
		path  int
		after time.Duration
		want  bool
	}{{1, 0, true}, {1, lossyFor, true}, {1, lossyFor + 1, false}, {2, 0, false}} {
		if got := l.lossy(path(tc.path), now.Add(tc.after)); got != tc.want {
			t.Errorf("path %d after %v: lossy %v", tc.path, tc.after, got)
		}
	}
	for i := range 3 * maxLossyPaths {
		l.found(path(i), now.Add(time.Duration(i)*time.Second))
	}
	if n := len(l.until); n > maxLossyPaths {
		t.Errorf("%d paths are remembered, want at most %d", n, maxLossyPaths)
	}
	if last := 3*maxLossyPaths - 1; !l.lossy(path(last), now.Add(time.Duration(last)*time.Second)) {
		t.Error("the latest path was forgotten")
	}
	var none *LossyPaths
	none.found(path(1), now)
	if none.lossy(path(1), now) {
		t.Error("nil remembers")
	}
}
