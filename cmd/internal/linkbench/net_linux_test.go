package linkbench

import (
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A limit is a token bucket on both hosts, and goes away again.
func TestLimit(t *testing.T) {
	w, err := newWire()
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	if w.congestion == "" {
		t.Error("the system's congestion control is not known")
	}
	rates := func() (all []uint64) {
		err := w.both(func() error {
			link, err := netlink.LinkByName(wireName)
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
		if err := w.both(func() error { return limit(rate) }); err != nil {
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

func TestOnOneCPU(t *testing.T) {
	w, err := newWire()
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	count := func() int {
		var set unix.CPUSet
		if err := unix.SchedGetaffinity(0, &set); err != nil {
			t.Fatal(err)
		}
		return set.Count()
	}
	err = w.left.Do(func() error {
		before, within := count(), 0
		err := onOneCPU(func() error { within = count(); return nil })
		if after := count(); within != 1 || after != before {
			t.Errorf("%d processors, %d within, %d afterwards", before, within, after)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
