package lab

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"time"
)

func TestFindController(t *testing.T) {
	const (
		one  = "30 29 0:27 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
		acct = "31 29 0:28 / /sys/fs/cgroup/cpuacct rw - cgroup cgroup rw,cpuacct\n"
		two  = "36 25 0:31 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n"
		part = "30 29 0:27 /docker/7 /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
	)
	for _, c := range []struct {
		mounts, groups string
		want           controller
	}{
		{acct + one, "4:cpu,cpuacct:/user\n0::/x\n", controller{own: "/sys/fs/cgroup/cpu/user"}},
		{two + one, "4:cpu:/\n0::/x\n", controller{own: "/sys/fs/cgroup/cpu"}},
		{two, "0::/system.slice/run\n", controller{v2: true, own: "/sys/fs/cgroup/system.slice/run"}},
		{part, "4:cpu:/docker/7/a\n", controller{own: "/sys/fs/cgroup/cpu/a"}},
	} {
		if got, err := findController(strings.NewReader(c.mounts), strings.NewReader(c.groups)); err != nil || got != c.want {
			t.Errorf("%s%s: %+v, %v; want %+v", c.mounts, c.groups, got, err, c.want)
		}
	}
	if _, err := findController(strings.NewReader(acct), strings.NewReader("4:cpuacct:/\n")); !errors.Is(err, errNoQuota) {
		t.Errorf("without the controller: %v", err)
	}
}

func TestQuotaFiles(t *testing.T) {
	for _, c := range []struct {
		cores float64
		want  string
	}{{1, "10000 10000"}, {.5, "5000 10000"}, {2.5, "25000 10000"}, {.1, "1000 10000"}, {.05, "1000 20000"}} {
		if got := (controller{v2: true}).files(c.cores)["cpu.max"]; got != c.want {
			t.Errorf("%g cores: %s, want %s", c.cores, got, c.want)
		}
	}
	if got := (controller{}).files(.05); !maps.Equal(got, map[string]string{"cpu.cfs_period_us": "20000", "cpu.cfs_quota_us": "1000"}) {
		t.Errorf("version 1: %v", got)
	}
	if share, each := quotaOf(.003); share < leastShare-time.Microsecond || each < 300*time.Millisecond {
		t.Errorf("%v of each %v", share, each)
	}
}
