package sealed

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// relay is an attacker on the way: it sees every record, and may change what it passes on. Records
// are numbered per direction from 0.
type relay struct {
	mu   sync.Mutex
	seen [2]bytes.Buffer // of direction 0, from the client, and 1
	edit func(direction, n int, record []byte) [][]byte
}

// between returns two ends with r between them. It ends with the test.
func (r *relay) between(t testing.TB) (client, server net.Conn) {
	t.Helper()
	client, left := dial(t)
	right, server := dial(t)
	var pumps sync.WaitGroup
	pumps.Go(func() { r.pump(0, left, right) })
	pumps.Go(func() { r.pump(1, right, left) })
	t.Cleanup(func() {
		for _, c := range []net.Conn{client, left, right, server} {
			c.Close()
		}
		pumps.Wait()
	})
	return client, server
}

func (r *relay) pump(direction int, from, to net.Conn) {
	defer to.(*net.TCPConn).CloseWrite()
	header := make([]byte, headerLen)
	for n := 0; ; n++ {
		if _, err := io.ReadFull(from, header); err != nil {
			return
		}
		record := slices.Concat(header, make([]byte, int(header[3])<<8|int(header[4])))
		if _, err := io.ReadFull(from, record[headerLen:]); err != nil {
			return
		}
		r.mu.Lock()
		r.seen[direction].Write(record)
		r.mu.Unlock()
		out := [][]byte{record}
		if r.edit != nil {
			out = r.edit(direction, n, record)
		}
		if _, err := to.Write(slices.Concat(out...)); err != nil {
			return
		}
	}
}

func (r *relay) saw(direction int) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return bytes.Clone(r.seen[direction].Bytes())
}

// A recording relay sees neither data nor identities: ranks and job are in the certificates, which
// are encrypted.
func TestRelayIsBlind(t *testing.T) {
	r := &relay{}
	a, b := r.between(t)
	k := newKey(t, "demo")
	early := []byte("early words of the server, which are sealed too")
	x, y := shake(t, a, b, member(t, k, 0), member(t, k, 1), name(k, 1), name(k, 0), early)
	if x.err != nil || y.err != nil {
		t.Fatal(x.err, y.err)
	}
	x.conn.SetDeadline(time.Now().Add(patience))
	y.conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.ReadFull(x.conn, make([]byte, len(early))); err != nil {
		t.Fatal(err)
	}
	data := bytes.Repeat([]byte("the plain text that nobody may see. "), 5000)
	exchange(t, x.conn, y.conn, data, []int{50_000}, []int{50_000})
	exchange(t, y.conn, x.conn, data, []int{50_000}, []int{50_000})
	for direction := range 2 {
		seen := r.saw(direction)
		if len(seen) < len(data) {
			t.Fatalf("the relay saw %d bytes of %d; it is not on the way", len(seen), len(data))
		}
		for _, secret := range []string{"plain text", "nobody", "early words", string(k.ID()), "isthmus:process", "rank"} {
			if bytes.Contains(seen, []byte(secret)) {
				t.Errorf("direction %d: the relay saw %q", direction, secret)
			}
		}
	}
}

// dataRecord returns the number, per direction, of the first record after the handshake: change of
// cipher and hello, and the sealed part of the handshake, come before it. It is counted rather than
// assumed.
func dataRecord(t *testing.T) (first [2]int) {
	t.Helper()
	var mu sync.Mutex
	counting := &relay{edit: func(direction, n int, record []byte) [][]byte {
		mu.Lock()
		defer mu.Unlock()
		first[direction] = n
		return [][]byte{record}
	}}
	a, b := counting.between(t)
	x, y := sealedOver(t, a, b)
	exchange(t, x, y, []byte("x"), []int{1}, []int{1})
	exchange(t, y, x, []byte("x"), []int{1}, []int{1})
	mu.Lock()
	defer mu.Unlock()
	return first
}

// Whatever an attacker on the way does to the records, the reader gets what was written up to
// there, and then an error: never other bytes, never the end.
func TestTampering(t *testing.T) {
	first := dataRecord(t)
	for name, c := range map[string]struct {
		edit func(i int, record []byte) [][]byte // i counts data records
		want string
	}{
		"flip the first bit": {func(i int, r []byte) [][]byte {
			if i == 2 {
				r[headerLen] ^= 0x80
			}
			return [][]byte{r}
		}, "seal is broken"},
		"flip the last bit": {func(i int, r []byte) [][]byte {
			if i == 2 {
				r[len(r)-1] ^= 1
			}
			return [][]byte{r}
		}, "seal is broken"},
		"flip the version": {func(i int, r []byte) [][]byte {
			if i == 2 {
				r[2] ^= 1
			}
			return [][]byte{r}
		}, "seal is broken"},
		"shorten": {func(i int, r []byte) [][]byte {
			if i == 2 {
				n := len(r) - 1 - headerLen
				r[3], r[4] = byte(n>>8), byte(n)
				return [][]byte{r[:len(r)-1]}
			}
			return [][]byte{r}
		}, "seal is broken"},
		"repeat": {func(i int, r []byte) [][]byte {
			if i == 1 {
				return [][]byte{r, r}
			}
			return [][]byte{r}
		}, "seal is broken"},
		"leave out": {func(i int, r []byte) [][]byte {
			if i == 2 {
				return nil
			}
			return [][]byte{r}
		}, "seal is broken"},
		"change the type": {func(i int, r []byte) [][]byte {
			if i == 2 {
				r[0] = byte(typeAlert)
			}
			return [][]byte{r}
		}, "not sealed"},
		"put in a plain alert": {func(i int, r []byte) [][]byte {
			if i == 2 {
				return [][]byte{{byte(typeAlert), 3, 3, 0, 2, 1, 0}}
			}
			return [][]byte{r}
		}, "not sealed"},
		"an overlong length": {func(i int, r []byte) [][]byte {
			if i == 2 {
				r[3], r[4] = 0x41, 1
			}
			return [][]byte{r}
		}, "a record of more than"},
	} {
		for direction := range 2 {
			t.Run(fmt.Sprintf("%s/direction=%d", name, direction), func(t *testing.T) {
				r := &relay{edit: func(d, n int, record []byte) [][]byte {
					if d == direction && n >= first[d] {
						return c.edit(n-first[d], record)
					}
					return [][]byte{record}
				}}
				a, b := r.between(t)
				from, to := sealedOver(t, a, b)
				if direction == 1 {
					from, to = to, from
				}
				data := random(1, 5*maxContent)
				if _, err := from.Write(data); err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(to)
				if !bytes.Equal(got, data[:2*firstContent]) || err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("read %d bytes, right: %v, then %v", len(got), bytes.HasPrefix(data, got), err)
				}
				if _, again := to.Read(make([]byte, 1)); again != err {
					t.Errorf("then %v", again)
				}
				// The other end receives an alert, and does not consider it a regular end.
				to.Close()
				if got, err := io.ReadAll(from); err == nil || len(got) > 0 {
					t.Errorf("the other end read %d bytes and %v", len(got), err)
				}
			})
		}
	}
}

// The first records fit into a packet each, so that what has arrived of the first flight can be
// read; later ones are full.
func TestFirstRecordsAreSmall(t *testing.T) {
	first := dataRecord(t)
	var mu sync.Mutex
	var sizes []int
	r := &relay{edit: func(d, n int, record []byte) [][]byte {
		if d == 0 && n >= first[0] {
			mu.Lock()
			sizes = append(sizes, len(record)-overhead)
			mu.Unlock()
		}
		return [][]byte{record}
	}}
	a, b := r.between(t)
	from, to := sealedOver(t, a, b)
	data := random(1, 10*maxContent)
	exchange(t, from, to, data, []int{len(data)}, []int{len(data)})
	mu.Lock()
	defer mu.Unlock()
	sum := 0
	for i, n := range sizes {
		want := min(maxContent, len(data)-sum)
		if sum < firstBytes {
			want = firstContent
		}
		if n != want {
			t.Fatalf("record %d has %d bytes, behind %d; want %d", i, n, sum, want)
		}
		sum += n
	}
	if sum != len(data) {
		t.Errorf("%d bytes in records of %d", sum, len(data))
	}
}

// A bit flipped anywhere in the handshake: neither end has a connection that delivers anything but
// what the other wrote.
func TestTamperedHandshake(t *testing.T) {
	k := newKey(t, "demo")
	first := dataRecord(t)
	for direction := range 2 {
		for n := range first[direction] {
			for _, where := range []float64{0, 0.3, 0.6, 0.999} {
				t.Run(fmt.Sprintf("direction=%d/record=%d/at=%v", direction, n, where), func(t *testing.T) {
					r := &relay{edit: func(d, i int, record []byte) [][]byte {
						if d == direction && i == n {
							body := record[headerLen:]
							body[int(where*float64(len(body)))] ^= 1
						}
						return [][]byte{record}
					}}
					a, b := r.between(t)
					x, y := shake(t, a, b, member(t, k, 0), member(t, k, 1), nil, nil, nil)
					if x.err != nil && y.err != nil {
						return
					}
					if y.err == nil {
						t.Fatal("the server saw nothing")
					}
					x.conn.SetDeadline(time.Now().Add(patience))
					if got, err := io.ReadAll(x.conn); err == nil || len(got) > 0 {
						t.Errorf("the client read %d bytes, %v", len(got), err)
					}
				})
			}
		}
	}
}

// An attacker with a certificate of another job cannot be a man in the middle.
func TestManInTheMiddle(t *testing.T) {
	k, foreign := newKey(t, "demo"), newKey(t, "demo")
	a, left := dial(t)
	x, y := shake(t, a, left, member(t, k, 0), believer{member(t, foreign, 1)}, name(k, 1), nil, nil)
	if !errors.Is(x.err, overlay.ErrForbidden) || y.err == nil {
		t.Errorf("client %v, man in the middle %v", x.err, y.err)
	}
}
