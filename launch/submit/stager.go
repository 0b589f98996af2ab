package submit

import (
	"fmt"
	"os"
	"sync"

	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
	"github.com/isthmus-grid/isthmus/launch/stage"
)

// sumsAtOnce bounds the sums in one message: 1 MiB of them, for files up to 32 GiB.
const sumsAtOnce = 32768

// stager stages the files to one node, one after the other: it sends a file's manifest, sends the
// chunks that are missing there, and continues when the node has the file. One goroutine calls next
// and another handles the node's messages.
type stager struct {
	files []File
	count func(missing, sent int64) // called with byte counts

	mu     sync.Mutex // guards the fields below
	active bool
	at     int                 // the current file
	tell   int                 // sums of its manifest that were sent; -1: all, and the last message had Continues unset
	send   []stage.Sum         // chunks to send
	chunks map[stage.Sum]int64 // offsets of the file's chunks
}

// begin starts the staging and reports whether there is nothing to do.
func (s *stager) begin() (done bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.active {
		return false
	}
	s.active = true
	s.file()
	return s.at >= len(s.files)
}

// restart resumes after the stream broke: with the current file, of which only missing chunks are
// sent.
func (s *stager) restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.active {
		s.file()
	}
}

// file begins the current file.
func (s *stager) file() {
	s.tell, s.send, s.chunks = 0, nil, nil
	if s.at >= len(s.files) {
		s.tell = -1
		return
	}
	s.chunks = map[stage.Sum]int64{}
	for i, sum := range s.files[s.at].Manifest.Chunks {
		s.chunks[sum] = int64(i) * stage.ChunkSize
	}
}

// next returns the next message to send, nil if there is none now.
func (s *stager) next() (*nodepb.ToNode, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.active {
		return nil, nil
	}
	if s.tell >= 0 {
		return s.manifest(), nil
	}
	if len(s.send) == 0 {
		return nil, nil
	}
	sum := s.send[0]
	s.send = s.send[1:]
	data, err := s.read(sum)
	if err != nil {
		return nil, err
	}
	s.count(0, int64(len(data)))
	return &nodepb.ToNode{Say: &nodepb.ToNode_Chunk{Chunk: &nodepb.Chunk{Sum: sum[:], Data: data}}}, nil
}

func (s *stager) manifest() *nodepb.ToNode {
	f := s.files[s.at]
	rest := f.Manifest.Chunks[s.tell:]
	part := rest[:min(len(rest), sumsAtOnce)]
	m := &nodepb.Manifest{Name: []byte(f.Name), Mode: uint32(f.Mode), Size: uint64(f.Manifest.Size), Continues: len(part) < len(rest)}
	for _, sum := range part {
		m.Sums = append(m.Sums, sum[:])
	}
	if s.tell += len(part); !m.Continues {
		s.tell = -1
	}
	return &nodepb.ToNode{Say: &nodepb.ToNode_Manifest{Manifest: m}}
}

// read returns the chunk of the current file, provided that the file has not changed.
func (s *stager) read(sum stage.Sum) ([]byte, error) {
	f := s.files[s.at]
	file, err := os.Open(f.Path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	offset := s.chunks[sum]
	data := make([]byte, min(stage.ChunkSize, f.Manifest.Size-offset))
	if _, err := file.ReadAt(data, offset); err != nil {
		return nil, fmt.Errorf("%s: %w", f.Path, err)
	}
	if stage.SumOf(data) != sum {
		return nil, fmt.Errorf("%s was changed while it was being sent", f.Path)
	}
	return data, nil
}

// missing handles a node's Missing. It skips chunks that the file does not have.
func (s *stager) missing(m *nodepb.Missing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.active || s.at >= len(s.files) || string(m.Name) != s.files[s.at].Name {
		return
	}
	var bytes int64
	for _, b := range m.Sums {
		if len(b) != len(stage.Sum{}) {
			continue
		}
		sum := stage.Sum(b)
		if offset, ok := s.chunks[sum]; ok && len(s.send) < len(s.files[s.at].Manifest.Chunks) {
			s.send = append(s.send, sum)
			bytes += min(stage.ChunkSize, s.files[s.at].Manifest.Size-offset)
		}
	}
	s.count(bytes, 0)
}

// stored handles a node's Stored, and reports whether that was the last file.
func (s *stager) stored(m *nodepb.Stored) (done bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.active || s.at >= len(s.files) || string(m.Name) != s.files[s.at].Name {
		return false
	}
	s.at++
	s.file()
	return s.at >= len(s.files)
}
