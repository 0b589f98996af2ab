package carrier

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestLossWatchChangesControl: a connection that is found to lose data gets the loss-tolerant
// congestion control, where the system has it, and keeps its own otherwise.
func TestLossWatchChangesControl(t *testing.T) {
	c, _ := pair(t)
	if err := Tune(c, Tuning{Congestion: []string{"reno"}}); err != nil {
		t.Fatal(err)
	}
	control := func() (name string) {
		raw, _ := c.SyscallConn()
		raw.Control(func(fd uintptr) { name, _ = unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION) })
		return name
	}
	shared := new(LossyPaths)
	w := WatchLoss(c, shared)
	now := time.Now()
	w.Look(now)
	if w.Lossy() || control() != "reno" {
		t.Fatalf("lossy %v, %q before anything was sent", w.Lossy(), control())
	}
	w.losses = losses{begun: true, since: now, looks: minLossLooks, again: minLosses, segments: 1}
	w.losses.last = lossSample{}
	w.raw.Control(func(fd uintptr) {
		if unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, lossTolerant) != nil {
			t.Skip("this system has no " + lossTolerant)
		}
		unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, "reno")
	})
	w.act(lossSample{shortest: time.Second, rtt: time.Second}, now)
	if !w.Lossy() || control() != lossTolerant {
		t.Errorf("lossy %v, %q after losses", w.Lossy(), control())
	}
	(*LossWatch)(nil).Look(now)

	// Another connection on the path need not find that again.
	if err := Tune(c, Tuning{Congestion: []string{"reno"}}); err != nil {
		t.Fatal(err)
	}
	other := WatchLoss(c, shared)
	if other.Look(now.Add(time.Minute)); !other.Lossy() || control() != lossTolerant {
		t.Errorf("lossy %v, %q on a path that is known to lose data", other.Lossy(), control())
	}
	if err := Tune(c, Tuning{Congestion: []string{"reno"}}); err != nil {
		t.Fatal(err)
	}
	if TolerateLoss(c); control() != lossTolerant {
		t.Errorf("%q after TolerateLoss", control())
	}
	if stranger := WatchLoss(c, nil); stranger != nil {
		if stranger.Look(now); stranger.Lossy() {
			t.Error("a watch that shares nothing knows of the losses")
		}
	}
}
