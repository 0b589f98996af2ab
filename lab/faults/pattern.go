package faults

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
)

// The stream consists of numbered blocks, so that a missing or duplicate one is detected by its
// number:
//
//	magic:u64 number:u64 check:u64, then words that follow from seed and number
const (
	blockLen  = 4096
	headerLen = 24
	magic     = 0x697374686d757321
)

// mix spreads the bits of x (the finalizer of splitmix64).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// fill writes block number n of the stream with this seed to b.
func fill(b *[blockLen]byte, seed, n uint64) {
	binary.LittleEndian.PutUint64(b[0:], magic)
	binary.LittleEndian.PutUint64(b[8:], n)
	binary.LittleEndian.PutUint64(b[16:], mix(seed^n))
	x := mix(seed + n)
	for i := headerLen; i < blockLen; i += 8 {
		x = x*6364136223846793005 + 1442695040888963407
		binary.LittleEndian.PutUint64(b[i:], x)
	}
}

// A checker compares what a link delivers with what must have been sent. After a fault it looks for
// the next block, so that it can count the missing or surplus bytes.
type checker struct {
	seed uint64
	sum  hash.Hash

	want [blockLen]byte
	next uint64 // number of the block in want
	at   int    // bytes of it received

	received uint64
	shift    int64  // offset between the stream and received, for lost bytes
	lost     uint64 // bytes
	doubled  uint64
	fault    string // the first
	hunting  bool   // searching for the next block
	scrap    []byte // while hunting: the last bytes, which may be the beginning of a header
}

func newChecker(seed uint64) *checker {
	c := &checker{seed: seed, sum: sha256.New()}
	fill(&c.want, seed, 0)
	return c
}

// take checks the next bytes of the stream.
func (c *checker) take(p []byte) {
	c.sum.Write(p)
	for len(p) > 0 {
		if c.hunting {
			p = c.hunt(p)
			continue
		}
		n := min(len(p), blockLen-c.at)
		wrong := !bytes.Equal(p[:n], c.want[c.at:c.at+n])
		if wrong {
			n = 0
			for p[n] == c.want[c.at+n] {
				n++
			}
		}
		p = p[n:]
		c.received += uint64(n)
		c.at += n
		if wrong {
			c.lose()
		} else if c.at == blockLen {
			c.next, c.at = c.next+1, 0
			fill(&c.want, c.seed, c.next)
		}
	}
}

// lose records that the next byte is wrong, and starts to search. What the block had of its header
// so far belongs to the search.
func (c *checker) lose() {
	if c.fault == "" {
		c.fault = fmt.Sprintf("byte %d of the stream, byte %d of block %d, is not what was sent", c.received, c.at, c.next)
	}
	c.hunting, c.scrap = true, c.scrap[:0]
	if c.at < headerLen {
		c.scrap = append(c.scrap, c.want[:c.at]...)
	}
}

// hunt looks for the header of a block and returns the bytes to check next.
func (c *checker) hunt(p []byte) []byte {
	had := len(c.scrap)
	c.scrap = append(c.scrap, p...)
	c.received += uint64(len(p))
	for i := 0; i+headerLen <= len(c.scrap); i++ {
		n, ok := c.header(c.scrap[i:])
		if !ok {
			continue
		}
		c.received -= uint64(len(c.scrap) - i)
		c.found(n)
		// The beginning of the header may have been taken before, as expected.
		c.at = max(0, had-i)
		c.received += uint64(c.at)
		c.hunting = false
		return p[max(0, i-had):]
	}
	c.scrap = append(c.scrap[:0], c.scrap[max(0, len(c.scrap)-headerLen+1):]...)
	return nil
}

// header returns the number of a block.
func (c *checker) header(b []byte) (n uint64, ok bool) {
	if binary.LittleEndian.Uint64(b) != magic {
		return 0, false
	}
	n = binary.LittleEndian.Uint64(b[8:])
	return n, binary.LittleEndian.Uint64(b[16:]) == mix(c.seed^n)
}

// found continues with block n, which begins after the received bytes.
func (c *checker) found(n uint64) {
	shift := int64(n)*blockLen - int64(c.received)
	switch d := shift - c.shift; {
	case d > 0:
		c.lost += uint64(d)
	case d < 0:
		c.doubled += uint64(-d)
	}
	c.shift, c.next = shift, n
	fill(&c.want, c.seed, n)
}

// digest returns the hash of all bytes taken.
func (c *checker) digest() string { return hex.EncodeToString(c.sum.Sum(nil)) }

// A source makes the stream.
type source struct {
	seed   uint64
	number uint64 // of the next block
	sum    hash.Hash
	buf    []byte
}

// next returns the next n bytes, a multiple of blockLen. They are valid until the next call.
func (s *source) next(n int) []byte {
	var b [blockLen]byte
	s.buf = s.buf[:0]
	for len(s.buf) < n {
		fill(&b, s.seed, s.number)
		s.buf = append(s.buf, b[:]...)
		s.number++
	}
	s.sum.Write(s.buf)
	return s.buf
}

func (s *source) digest() string { return hex.EncodeToString(s.sum.Sum(nil)) }

func newSource(seed uint64) *source { return &source{seed: seed, sum: sha256.New()} }
