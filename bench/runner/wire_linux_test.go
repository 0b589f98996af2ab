//go:build system

package runner

import (
	"net"
	"net/netip"
	"os"
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

func TestOnOneCPU(t *testing.T) {
	w, err := NewWire()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	count := func() int {
		var set unix.CPUSet
		if err := unix.SchedGetaffinity(0, &set); err != nil {
			t.Fatal(err)
		}
		return set.Count()
	}
	err = w.Left.Do(func() error {
		before, within := count(), 0
		err := OnOneCPU(func() error { within = count(); return nil })
		if after := count(); within != 1 || after != before {
			t.Errorf("%d processors, %d within, %d afterwards", before, within, after)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
