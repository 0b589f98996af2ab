package shm

import (
	"sync"
	"testing"
	"unsafe"
)

func TestControlFits(t *testing.T) {
	if n := unsafe.Sizeof(control{}); n > controlBytes {
		t.Errorf("a control takes %d bytes, of %d", n, controlBytes)
	}
}

// Each piece of a slot is copied once, by one of the two sides.
func TestLoan(t *testing.T) {
	seg, err := Create(0)
	if err != nil {
		t.Fatal(err)
	}
	defer seg.Close()
	other, err := Open(seg.Descriptor())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	tx, _ := seg.Ends()
	_, rx := other.Ends()
	const n = 50*largestPiece + 1
	i, ok := tx.Expose(n)
	if !ok {
		t.Fatal("no slot")
	}
	if _, ok := tx.Help(i); ok {
		t.Error("the lender copies what nobody borrowed")
	}
	if !rx.Accept(i) || tx.Revoke(i) || rx.Accept(i) {
		t.Error("borrowed wrongly")
	}
	var seen [51]int
	var both sync.WaitGroup
	own := 0
	var helped []int
	both.Go(func() {
		for p, ok := tx.Help(i); ok; p, ok = tx.Help(i) {
			helped = append(helped, p)
		}
	})
	for p, ok := rx.Claim(i); ok; p, ok = rx.Claim(i) {
		seen[p]++
		own++
	}
	both.Wait()
	for _, p := range helped {
		if rx.Settled(i, n, own) {
			t.Error("settled before all was copied")
		}
		tx.Helped(i)
		seen[p]++
	}
	if !rx.Settled(i, n, own) {
		t.Error("not settled")
	}
	for p, times := range seen {
		if times != 1 {
			t.Errorf("piece %d was copied %d times", p, times)
		}
	}
	tx.Free(i)
	if _, ok := rx.Claim(i); ok || rx.Accept(i) {
		t.Error("a slot that is over is accepted")
	}
}

func TestLoansRunOut(t *testing.T) {
	seg, err := Create(0)
	if err != nil {
		t.Fatal(err)
	}
	defer seg.Close()
	tx, _ := seg.Ends()
	for range CopySlots {
		if _, ok := tx.Expose(1); !ok {
			t.Fatal("no slot")
		}
	}
	if _, ok := tx.Expose(1); ok {
		t.Error("one slot too many")
	}
	if !tx.Revoke(7) || tx.Revoke(7) {
		t.Error("not revoked once")
	}
	if _, ok := tx.Expose(1); ok {
		t.Error("what is revoked is used again before it is freed")
	}
	tx.Free(7)
	if i, ok := tx.Expose(1); !ok || i != 7 {
		t.Errorf("slot %d, %v", i, ok)
	}
}

// Pieces are whole pages, but for the last, and cover a buffer; one that is not large has one for each process.
func TestPiece(t *testing.T) {
	for _, n := range []int{1, smallestPiece, smallestPiece + 1, 2 * smallestPiece, 100_001, 2*largestPiece - 1, 2 * largestPiece, 2*largestPiece + 1, 1 << 20, 5_000_001, MaxExposed} {
		size, k := Piece(n), int(pieces(n))
		if size%page != 0 || size < smallestPiece || size > largestPiece || (k-1)*size >= n || k*size < n {
			t.Errorf("%d bytes: %d pieces of %d", n, k, size)
		}
		if n > smallestPiece && n <= 2*largestPiece && k != 2 {
			t.Errorf("%d bytes: %d pieces, not one for each process", n, k)
		}
	}
}
