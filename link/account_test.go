package link

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// booking is a connector that records the reports about links.
type booking struct {
	*roadEnd
	booked *[]overlay.Traffic
	mu     *sync.Mutex
}

func newBooking(e *roadEnd) booking { return booking{e, new([]overlay.Traffic), new(sync.Mutex)} }

func (b booking) Report(t overlay.Traffic) {
	b.mu.Lock()
	defer b.mu.Unlock()
	*b.booked = append(*b.booked, t)
}

func (b booking) all() []overlay.Traffic {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(*b.booked)
}

// What a link moves over carriers that no daemon counts is reported when it is over, at both ends
// and under one id, without what a relay carried.
func TestTrafficIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const direct, relayed = 3 << 20, 2 << 20
		r := newRoads(t)
		var books [2]booking
		links := make(chan *Link, 2)
		var serving sync.WaitGroup
		ctx, leave := context.WithCancel(t.Context())
		defer serving.Wait()
		defer leave()
		for i := range books {
			books[i] = newBooking(r.end(uint32(i)))
			m := NewMesh(Config{Self: identity(t, uint32(i)), Size: 2, Connector: books[i], Carriers: 1, Up: func(l *Link) { links <- l }})
			serving.Go(func() { m.Serve(ctx) })
			if i == 1 {
				if err := m.Connect(t.Context(), 0); err != nil {
					t.Fatal(err)
				}
			}
		}
		a, b := linked(links), linked(links)
		pump(t, a, b, direct)
		until := func(what string, ok func() bool) {
			t.Helper()
			for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("waited for: " + what)
				}
			}
		}
		until("both to be told that there is a link", func() bool { return len(books[0].all()) > 0 && len(books[1].all()) > 0 })
		r.block(overlay.Direct, errors.New("the direct road is closed"))
		r.cut()
		// What is written before an end has noticed counts as sent, because the system accepted it.
		until("both ends to have left the direct road", func() bool {
			return !slices.ContainsFunc(slices.Concat(a.Carriers(), b.Carriers()), func(c Carrier) bool { return c.Path.Technique != overlay.Relay })
		})
		pump(t, a, b, relayed)
		leave()
		serving.Wait()

		var last [2]overlay.Traffic
		for i, book := range books {
			all := book.all()
			for _, early := range all[:len(all)-1] {
				if early.Over {
					t.Errorf("end %d said more after the end: %+v", i, all)
				}
			}
			last[i] = all[len(all)-1]
			// The counts include headers and acknowledgements.
			for _, n := range []uint64{last[i].Sent, last[i].Received} {
				if n < direct || n > direct+direct/4 {
					t.Errorf("end %d reports %d bytes for %d: %+v", i, n, direct, last[i])
				}
			}
			if l := last[i]; !l.Over || l.Technique != overlay.Direct || l.Rank != uint32(1-i) || l.Lasted <= 0 {
				t.Errorf("end %d: %+v", i, l)
			}
		}
		if last[0].Link != last[1].Link || last[0].Link == [16]byte{} {
			t.Errorf("ids %x and %x", last[0].Link, last[1].Link)
		}
	})
}

// A link that only daemons carried, or that did not leave its node, is not reported.
func TestNothingToReport(t *testing.T) {
	for p, want := range map[overlay.Path]bool{
		{}:                                false,
		{Technique: overlay.Direct}:       true,
		{Technique: overlay.HolePunching}: true,
		{Technique: overlay.Direct, Via: overlay.ViaTarget}: false,
		{Technique: overlay.Relay, Proxy: "p1"}:             false,
	} {
		if p.Uncounted() != want {
			t.Errorf("%v: uncounted %v", p, !want)
		}
	}
	said := 0
	m := NewMesh(Config{Self: identity(t, 0), Size: 2, Connector: counter{said: &said}})
	sv := &supervisor{mesh: m, link: &Link{}}
	sv.report(time.Now(), true)
	if said != 0 {
		t.Error("a link without such a carrier is told of")
	}
	sv.link.open.Store(&overlay.Path{Technique: overlay.Direct})
	sv.report(time.Now(), true)
	if said != 0 {
		t.Error("a carrier that did not become the link is told of")
	}
}

type counter struct {
	overlay.Connector
	said *int
}

func (c counter) Report(overlay.Traffic) { *c.said++ }
