package stage

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
)

// ChunkSize is the size of all chunks of a file except the last, which may be shorter.
const ChunkSize = 1 << 20

// MaxFile is the largest file that can be staged.
const MaxFile = 1 << 40

// Sum names a chunk: the SHA-256 of its content.
type Sum [sha256.Size]byte

// String returns the sum in hexadecimal digits.
func (s Sum) String() string { return hex.EncodeToString(s[:]) }

// SumOf returns the name of a chunk.
func SumOf(chunk []byte) Sum { return sha256.Sum256(chunk) }

// Manifest lists the chunks of a file. Two files of the same content have equal manifests.
type Manifest struct {
	Size   int64
	Chunks []Sum
}

// Describe reads a file to its end and returns its manifest.
func Describe(r io.Reader) (Manifest, error) {
	var m Manifest
	buf := make([]byte, ChunkSize)
	for {
		n, err := io.ReadFull(r, buf)
		if n > 0 {
			m.Size += int64(n)
			m.Chunks = append(m.Chunks, SumOf(buf[:n]))
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return m, nil
		case err != nil:
			return Manifest{}, fmt.Errorf("stage: %w", err)
		case m.Size > MaxFile:
			return Manifest{}, fmt.Errorf("stage: a file of more than %d bytes", int64(MaxFile))
		}
	}
}

// Check validates a manifest from another node.
func (m Manifest) Check() error {
	if m.Size < 0 || m.Size > MaxFile || int64(len(m.Chunks)) != (m.Size+ChunkSize-1)/ChunkSize {
		return fmt.Errorf("stage: a manifest of %d bytes in %d chunks; want 0 to %d bytes, in chunks of %d", m.Size, len(m.Chunks), int64(MaxFile), ChunkSize)
	}
	return nil
}

// chunk returns the size of the i-th chunk.
func (m Manifest) chunk(i int) int64 { return min(ChunkSize, m.Size-int64(i)*ChunkSize) }
