package carrier

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestTune(t *testing.T) {
	c, _ := pair(t)
	err := Tune(c, Tuning{
		Buffer: 100_000, Congestion: []string{"no-such-algorithm", "reno"},
		KeepAlive: 9 * time.Second, UserTimeout: 1500 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	raw, _ := c.SyscallConn()
	raw.Control(func(fd uintptr) {
		for name, tc := range map[string]struct{ level, option, want int }{
			"TCP_NODELAY":      {unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
			"SO_SNDBUF":        {unix.SOL_SOCKET, unix.SO_SNDBUF, 200_000}, // the kernel doubles it (socket(7))
			"SO_RCVBUF":        {unix.SOL_SOCKET, unix.SO_RCVBUF, 200_000},
			"SO_KEEPALIVE":     {unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
			"TCP_KEEPIDLE":     {unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 9},
			"TCP_KEEPINTVL":    {unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 3},
			"TCP_KEEPCNT":      {unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 3},
			"TCP_USER_TIMEOUT": {unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 1500},
		} {
			if got, err := unix.GetsockoptInt(int(fd), tc.level, tc.option); err != nil || got != tc.want {
				t.Errorf("%s = %d, %v; want %d", name, got, err, tc.want)
			}
		}
		if cc, err := unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION); err != nil || cc != "reno" {
			t.Errorf("congestion control is %q, %v", cc, err)
		}
	})
	c.Close()
	if err := Tune(c, Tuning{}); err == nil {
		t.Error("a closed socket was tuned")
	}
}
