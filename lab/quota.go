package lab

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"
)

// errNoQuota says that this machine cannot limit the processors of hosts.
var errNoQuota = errors.New("no limit of processors here")

// A controller is where the kernel limits processors: the cpu controller of cgroups, version 1 or 2.
type controller struct {
	v2  bool
	own string // the folder of this process's group
}

// findController finds it in a process's /proc/self/mountinfo and /proc/self/cgroup. It is version 1 where that has the
// controller, since then version 2 does not.
func findController(mountinfo, cgroup io.Reader) (controller, error) {
	groups := map[string]string{} // by controller; "" is version 2
	for lines := bufio.NewScanner(cgroup); lines.Scan(); {
		if f := strings.SplitN(lines.Text(), ":", 3); len(f) == 3 {
			for name := range strings.SplitSeq(f[1], ",") {
				groups[name] = f[2]
			}
		}
	}
	found := map[string]string{} // own group's folder, by version
	for lines := bufio.NewScanner(mountinfo); lines.Scan(); {
		before, after, _ := strings.Cut(lines.Text(), " - ")
		at, fs := strings.Fields(before), strings.Fields(after)
		if len(at) < 5 || len(fs) < 3 {
			continue
		}
		name := "cpu"
		switch {
		case fs[0] == "cgroup2":
			name = ""
		case fs[0] != "cgroup" || !slices.Contains(strings.Split(fs[2], ","), "cpu"):
			continue
		}
		if group, ok := groups[name]; ok && found[name] == "" {
			found[name] = path.Join(at[4], strings.TrimPrefix(group, strings.TrimSuffix(at[3], "/")))
		}
	}
	switch {
	case found["cpu"] != "":
		return controller{own: found["cpu"]}, nil
	case found[""] != "":
		return controller{v2: true, own: found[""]}, nil
	}
	return controller{}, fmt.Errorf("%w: no cgroup file system with the cpu controller is mounted", errNoQuota)
}

// Processes of a group run for a part of each period. The kernel knows no part below leastShare, and the shorter a period the
// less a host differs from one with a slow processor.
const (
	period     = 10 * time.Millisecond
	leastShare = time.Millisecond
)

// quotaOf returns for how long of each period processes may run, in total over all processors.
func quotaOf(cores float64) (share, each time.Duration) {
	each = max(period, time.Duration(float64(leastShare)/cores))
	return time.Duration(cores * float64(each)).Round(time.Microsecond), each
}

// files returns what is to be written to which file of a group.
func (c controller) files(cores float64) map[string]string {
	share, each := quotaOf(cores)
	if c.v2 {
		return map[string]string{"cpu.max": fmt.Sprintf("%d %d", share.Microseconds(), each.Microseconds())}
	}
	return map[string]string{"cpu.cfs_period_us": fmt.Sprint(each.Microseconds()), "cpu.cfs_quota_us": fmt.Sprint(share.Microseconds())}
}

// parent returns the folder in which groups are made. Version 2 allows limits only beside the groups of processes.
func (c controller) parent() string {
	if c.v2 {
		return path.Dir(c.own)
	}
	return c.own
}
