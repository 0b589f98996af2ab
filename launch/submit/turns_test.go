package submit

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-grid/isthmus/launch/allocate"
	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
	"github.com/isthmus-grid/isthmus/overlay"
)

// makeUp has a site list hosts that do not exist.
func (w *world) makeUp(site string, n int, jobs uint32, unanswered bool) {
	for i := range n {
		w.madeUp = append(w.madeUp, &nodepb.Host{Node: fmt.Sprintf("%s/n%d", site, i), State: "up", Jobs: jobs, Processes: 4, Unanswered: unanswered})
	}
}

// Hosts that one site has made up cost a job little that finds room without them, and nothing once the helper
// has asked them.
func TestMadeUpHosts(t *testing.T) {
	for _, unanswered := range []bool{false, true} {
		t.Run(fmt.Sprintf("unanswered=%t", unanswered), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a/n1:1", "a/n2:1")
				w.makeUp("evil", 100, 1, unanswered)
				start := time.Now()
				if _, err := w.run(jobOf(t, 2, io.Discard)); err != nil {
					t.Fatal(err)
				}
				// A wave of hosts is booked beside those that are used, and given up.
				if took := time.Since(start); took > probesQuiet+partTime || unanswered && w.asked.Load() > 0 {
					t.Errorf("it took %v, and %d calls to hosts that do not exist", took, w.asked.Load())
				}
				w.idle()
			})
		})
	}
}

// A job that finds too little room ends within its bound, however many hosts are made up.
func TestMadeUpHostsEnd(t *testing.T) {
	for wait, most := range map[time.Duration]time.Duration{
		0:                probeTime + bookTime + answerTime,
		20 * time.Second: 20*time.Second + probeTime + answerTime + waitStep,
	} {
		t.Run(wait.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a/n1:1", "a/n2:1")
				w.makeUp("evil", 2000, 1, false)
				start := time.Now()
				j := jobOf(t, 3, io.Discard)
				j.Wait = wait
				_, err := w.run(j)
				var short *allocate.Shortage
				if took := time.Since(start); !errors.As(err, &short) || took > most || took < wait {
					t.Errorf("after %v: %v", took, err)
				}
				w.idle()
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a/n1:1", "a/n2:1")
		w.makeUp("evil", 2000, 1, true)
		start := time.Now()
		_, err := w.run(jobOf(t, 3, io.Discard))
		if took := time.Since(start); err == nil || took > time.Second || w.asked.Load() > 0 {
			t.Errorf("after %v and %d calls to hosts of which it is known that they do not answer: %v", took, w.asked.Load(), err)
		}
		w.idle()
	})
}

// The jobs of the hosts that answer are listed in time beside any number of others.
func TestJobsBesideMadeUpHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a/n1:1", "z/n1:1")
		w.makeUp("evil", 2000, 0, false)
		w.makeUp("known", 10, 1, true)
		start := time.Now()
		_, silent, err := w.grid.Jobs(t.Context())
		if took := time.Since(start); err != nil || took > askTime || len(silent) != 2010 || w.asked.Load() != siteTrial {
			t.Errorf("%d silent after %v and %d calls, %v", len(silent), took, w.asked.Load(), err)
		}
	})
}

// A site whose hosts answer is asked as far as there is room; sites take turns.
func TestSitesTakeTurns(t *testing.T) {
	var hosts []Host
	for _, site := range []overlay.SiteID{"a", "b"} {
		for i := range 20 {
			hosts = append(hosts, Host{Host: allocate.Host{Node: overlay.NodeID{Site: site, Name: fmt.Sprint(i)}}})
		}
	}
	of := func(i int) overlay.SiteID { return hosts[i].Node.Site }
	turns := newTurns(hosts, func(h Host) bool { return h.Node.Name != "19" })
	count := map[overlay.SiteID]int{}
	for i, found := turns.next(); found; i, found = turns.next() {
		count[of(i)]++
	}
	if count["a"] != siteTrial || count["b"] != siteTrial {
		t.Errorf("%v are asked first", count)
	}
	turns.done("a", nil)
	for i, found := turns.next(); found; i, found = turns.next() {
		count[of(i)]++
	}
	if count["a"] != 19 || count["b"] != siteTrial {
		t.Errorf("%v are asked after an answer of a", count)
	}
	for range siteTrial - 1 {
		if dropped := turns.done("b", io.EOF); dropped != nil {
			t.Errorf("%v are dropped", dropped)
		}
	}
	if n := len(turns.left()); n != 19-siteTrial {
		t.Errorf("%d are left", n)
	}
	if n := len(turns.done("b", io.EOF)); n != 19-siteTrial || turns.left() != nil {
		t.Errorf("%d are dropped, %v are left", n, turns.left())
	}
}
