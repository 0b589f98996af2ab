package merge

import (
	"bytes"
	"fmt"
	"io"
	"os"
)

// Of a spool.
const (
	maxMemory = 1 << 20  // bytes in memory; later ones are in a file
	maxKept   = 1 << 30  // all of them
	maxUsed   = 16 << 20 // bytes of a file that were read, before the others move to a new one
)

// A spool is a queue of bytes. When many are in it the later ones are in a file.
type spool struct {
	memory []byte   // the first bytes
	file   *os.File // has the others
	name   string   // of the file, if it still has one
	read   int64    // the others are those from here
	filled int64    // to here
}

func (s *spool) len() int64 { return int64(len(s.memory)) + s.filled - s.read }

// write appends bytes.
func (s *spool) write(p []byte) (err error) {
	if s.len()+int64(len(p)) > maxKept {
		return fmt.Errorf("more than %d MiB", maxKept>>20)
	}
	if s.filled == s.read && len(s.memory)+len(p) <= maxMemory {
		s.memory = append(s.memory, p...)
		return nil
	}
	if s.file == nil {
		if err := s.create(); err != nil {
			return err
		}
	}
	if s.read >= maxUsed && s.read > s.filled-s.read {
		if err := s.move(); err != nil {
			return err
		}
	}
	n, err := s.file.WriteAt(p, s.filled)
	s.filled += int64(n)
	return err
}

// create makes the file.
func (s *spool) create() (err error) {
	if s.file, err = os.CreateTemp("", "isthmus-output-"); err != nil {
		return err
	}
	if s.name = s.file.Name(); os.Remove(s.name) == nil { // a system may refuse that while it is open
		s.name = ""
	}
	return nil
}

// move moves what is not read to a new file, so that a replica that stays behind does not fill the disk with what it has.
func (s *spool) move() error {
	var to spool
	if err := to.create(); err != nil {
		return err
	}
	n, err := io.Copy(to.file, io.NewSectionReader(s.file, s.read, s.filled-s.read))
	if err != nil {
		to.close()
		return err
	}
	s.close()
	s.file, s.name, s.filled = to.file, to.name, n
	return nil
}

// head returns the first bytes, some at least if there are any.
func (s *spool) head() ([]byte, error) {
	if len(s.memory) == 0 && s.filled > s.read {
		s.memory = make([]byte, min(maxMemory, s.filled-s.read))
		if _, err := s.file.ReadAt(s.memory, s.read); err != nil {
			s.memory = nil
			return nil, err
		}
		if s.read += int64(len(s.memory)); s.read == s.filled {
			s.close()
		}
	}
	return s.memory, nil
}

// discard removes the first n bytes, or all if these are fewer.
func (s *spool) discard(n int) {
	fromMemory := min(n, len(s.memory))
	s.memory = s.memory[fromMemory:]
	if n -= fromMemory; n > 0 && s.filled > s.read {
		if s.read += min(int64(n), s.filled-s.read); s.read == s.filled {
			s.close()
		}
	}
}

// close removes the file.
func (s *spool) close() {
	if s.file != nil {
		s.file.Close()
		if s.name != "" {
			os.Remove(s.name)
		}
		s.file, s.name, s.read, s.filled = nil, "", 0, 0
	}
}

// copyOf returns a copy of the first n bytes, or of all if these are fewer.
func (s *spool) copyOf(n int64) (to spool, err error) {
	to.memory = bytes.Clone(s.memory[:min(n, int64(len(s.memory)))])
	if n -= int64(len(to.memory)); n > 0 && s.filled > s.read {
		rest := make([]byte, min(n, s.filled-s.read))
		if _, err := s.file.ReadAt(rest, s.read); err != nil {
			return to, err
		}
		err = to.write(rest)
	}
	return to, err
}
