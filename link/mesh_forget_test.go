package link

import "testing"

// Forget removes a rank with which there was a link, and no other.
func TestForget(t *testing.T) {
	m := NewMesh(Config{Size: 4})
	m.attemptFor(1).handed = true
	m.attemptFor(2)
	m.attemptFor(3).handed = true
	m.attemptFor(3).verdicts[1] = make(chan error, 1) // another carrier is being judged
	for rank := range uint32(4) {
		m.Forget(rank)
	}
	if m.pairs[1] != nil || m.pairs[2] == nil || m.pairs[3] == nil {
		t.Errorf("left are %v", m.pairs)
	}
}
