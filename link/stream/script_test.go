package stream

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"
)

// FuzzScript: two streams and their carriers, driven by a string of one letter and one digit for
// each step, checked only against a count of bytes.
//
//	w, v  end 0 or 1 writes a size of 4^digit bytes or a few more
//	r, q  end 0 or 1 reads at most that size, if anything is in flight
//	a     attach a carrier of the digit's kind; c, d, m cut, drop, silence the digit-th
//	u     give the digit-th carrier a weight; t a tick of the watch
//	e, f  end 0 or 1 ends its direction
//
// At the end there is a carrier again, both directions are ended and read.
func FuzzScript(f *testing.F) {
	for _, s := range []string{
		"", "a0w0r0q0", "w9w5c0a1q9v3r4", "a0a1u0u1w9w9w9d0q9q9t0c0", "a3w8m0a0t0t0q9e0f0r9", "a0w1e0w2c0a1q1v7f0r9",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, script string) {
		synctest.Test(t, func(t *testing.T) { play(t, script) })
	})
}

func play(t *testing.T, script string) {
	w := newWorld(t)
	w.watch() // without it no data is read where the script does not read
	var roads []*road
	var sent, got [2]uint64
	var ended [2]bool
	buf := make([]byte, 1<<19)
	read := func(k, most int) {
		n, err := w.ends[k].Read(buf[:min(most, len(buf))])
		if fault := wrong(buf[:n], 1-k, got[1-k]); fault != "" {
			t.Fatal(fault)
		}
		if got[1-k] += uint64(n); err != nil {
			t.Fatalf("%d of %d bytes of end %d: %v", got[1-k], sent[1-k], 1-k, err)
		}
	}
	end := func(k int) {
		if ended[k] {
			return
		}
		ended[k] = true
		if err := w.ends[k].CloseWrite(); err != nil {
			t.Fatal(err)
		}
	}
	for i := 0; i+1 < min(len(script), 120); i += 2 {
		op, digit := script[i], int(script[i+1]-'0')%10
		size := 1<<(2*digit) + digit
		var r *road
		if len(roads) > 0 {
			r = roads[digit%len(roads)]
		}
		k := map[byte]int{'v': 1, 'q': 1, 'f': 1}[op]
		switch op {
		case 'w', 'v':
			if n := min(size, len(buf)); !ended[k] && sent[k]-got[k]+uint64(n) < Window/2 {
				want(buf[:n], k, sent[k])
				if _, err := w.ends[k].Write(buf[:n]); err != nil {
					t.Fatal(err)
				}
				spoil(buf[:n])
				sent[k] += uint64(n)
			}
		case 'r', 'q':
			w.alive(&roads, digit)
			if sent[1-k] > got[1-k] {
				read(k, size)
			}
		case 'a':
			if len(roads) < 8 {
				w.add(&roads, kinds[digit%len(kinds)])
			}
		case 'c', 'd', 'm':
			if r == nil {
				continue
			}
			roads = append(roads[:digit%len(roads)], roads[digit%len(roads)+1:]...)
			if op == 'd' {
				w.ends[digit%2].Drop(r.carriers[digit%2], errors.New("dropped"))
			} else if op == 'm' && r.mute != nil {
				r.mute()
			} else {
				r.cut()
			}
		case 'u':
			if r != nil {
				w.ends[digit%2].Use(r.carriers[digit%2], uint32(digit))
			}
		case 't':
			w.tick()
		case 'e', 'f':
			end(k)
		}
	}
	w.alive(&roads, 0)
	for k := range 2 {
		end(k)
		for got[k] < sent[k] {
			read(1-k, len(buf))
		}
		if _, err := w.ends[1-k].Read(buf[:1]); err != io.EOF {
			t.Fatalf("behind the end: %v", err)
		}
	}
}

// alive gives the streams a new carrier in place of all others.
func (w *world) alive(roads *[]*road, digit int) {
	for _, r := range *roads {
		r.cut()
	}
	for _, e := range w.ends { // including the muted ones
		for _, c := range e.Carriers() {
			e.Drop(c.Carrier, errors.New("replaced"))
		}
	}
	*roads = nil
	w.add(roads, kinds[digit%2])
}

// add attaches a carrier, unless both directions have ended and the streams are over.
func (w *world) add(roads *[]*road, kind string) {
	if r := w.road(kind); w.attach(r) {
		*roads = append(*roads, r)
	}
}
