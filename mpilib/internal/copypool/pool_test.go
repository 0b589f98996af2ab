package copypool

import "testing"

// The pool is bounded.
func TestPoolBound(t *testing.T) {
	var p Pool
	for range 100 {
		p.Put(make([]byte, 1<<20-1))
	}
	p.Put(make([]byte, 1<<21))
	p.Put(nil)
	if p.bytes > maxPooled || p.bytes < maxPooled-1<<20 {
		t.Errorf("%d bytes", p.bytes)
	}
	for range 100 {
		p.Clone(make([]byte, 1<<20-1))
	}
	if p.bytes != 0 {
		t.Errorf("%d bytes are left", p.bytes)
	}
}
