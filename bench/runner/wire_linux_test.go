//go:build system

package runner

import (
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-grid/isthmus/lab"
)

// TestMain puts the tests into namespaces of their own.
func TestMain(m *testing.M) {
	lab.Main()
	os.Exit(m.Run())
}

// A limit is a token bucket on both hosts, and can be removed.
func TestLimit(t *testing.T) {
	w, err := NewWire()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if w.Congestion == "" {
		t.Error("the system's congestion control is not known")
	}
	rates := func() (all []uint64) {
		err := w.Both(func() error {
			link, err := netlink.LinkByName(WireName)
			if err != nil {
				return err
			}
			disciplines, err := netlink.QdiscList(link)
			for _, q := range disciplines {
				if tbf, ok := q.(*netlink.Tbf); ok {
					all = append(all, tbf.Rate*8)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	for _, rate := range []uint64{0, 1e9, 1e8, 0, 0} {
		if err := w.Limit(rate); err != nil {
			t.Fatalf("limit %d: %v", rate, err)
		}
		var want []uint64
		if rate > 0 {
			want = []uint64{rate, rate}
		}
		if got := rates(); !slices.Equal(got, want) {
			t.Errorf("limit %d: the hosts' limits are %d", rate, got)
		}
	}
}

// The first existing one counts; without one, nothing changes.
func TestCongestion(t *testing.T) {
	w, err := NewWire()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for _, names := range [][]string{{"no-such-thing", "reno"}, {"no-such-thing"}} { // every kernel has reno
		if used, err := w.SetCongestion(names...); err != nil || used != "reno" {
			t.Errorf("%v: %q, %v", names, used, err)
		}
	}
}

func TestCarried(t *testing.T) {
	w, err := NewWire()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	before, err := w.TotalBytes()
	if err != nil {
		t.Fatal(err)
	}
	err = w.Left.Do(func() error {
		c, err := net.Dial("udp4", netip.AddrPortFrom(RightAddr, 9).String())
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write(make([]byte, 1000))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	// The address must be resolved first; the packet waits for the answer.
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		after, err := w.TotalBytes()
		if err != nil {
			t.Fatal(err)
		}
		if after >= before+1000 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d bytes before, %d after 1000 were sent", before, after)
		}
	}
}

// Each number is a processor of its own, until the first comes again.
func TestOnCPU(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all, after unix.CPUSet
	used := map[unix.CPUSet]bool{}
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	for number := 1; number <= all.Count()+1; number++ {
		var one unix.CPUSet
		err := OnCPU(number, func() error { return unix.SchedGetaffinity(0, &one) })
		if err != nil || one.Count() != 1 || used[one] != (number > all.Count()) {
			t.Errorf("number %d: %v, %v, used before: %v", number, one, err, used[one])
		}
		used[one] = true
	}
	if err := unix.SchedGetaffinity(0, &after); err != nil || after != all {
		t.Errorf("%v, %v afterwards, %v before", after, err, all)
	}
}
