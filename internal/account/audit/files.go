package audit

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// A log's files are STEM.SEQ.DAY.jsonl: SEQ is the number of the first record in it, in twelve
// digits so that names sort, and DAY that record's, as 20061102. The process that writes holds
// STEM.lock.

const (
	extension   = ".jsonl"
	dayFormat   = "20060102"
	maxWriters  = 9 // processes of one daemon that write at the same time, as in a handover
	folderMode  = 0o750
	fileMode    = 0o640
	maxInFolder = 1 << 20
)

func fileName(stem string, seq uint64, day string) string {
	return fmt.Sprintf("%s.%012d.%s%s", stem, seq, day, extension)
}

// fileSeq returns the number of the first record from a file's name.
func fileSeq(stem, name string) (uint64, bool) {
	rest, ok := strings.CutPrefix(name, stem+".")
	if !ok {
		return 0, false
	}
	rest, ok = strings.CutSuffix(rest, extension)
	number, day, dot := strings.Cut(rest, ".")
	seq, err := strconv.ParseUint(number, 10, 64)
	return seq, ok && dot && err == nil && len(day) == len(dayFormat) && len(number) >= 12
}

// stemOf returns the prefix of file names for a daemon's identity: proxy-p1.
func stemOf(daemon string) string {
	return strings.Map(func(c rune) rune {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_':
			return c
		}
		return '-'
	}, daemon)
}

// lockStem returns the stem that only this process writes under, and the file that holds its lock.
// During a handover a daemon has two processes for a while; the younger has a log of its own, named
// STEM+2.
func lockStem(folder, daemon string) (stem string, lock *os.File, err error) {
	for n := 1; n <= maxWriters; n++ {
		if stem = stemOf(daemon); n > 1 {
			stem += "+" + strconv.Itoa(n)
		}
		lock, err = os.OpenFile(filepath.Join(folder, stem+".lock"), os.O_CREATE|os.O_RDWR, fileMode)
		if err != nil {
			return "", nil, err
		}
		err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return stem, lock, nil
		}
		lock.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return "", nil, fmt.Errorf("locking %s: %w", lock.Name(), err)
		}
	}
	return "", nil, fmt.Errorf("%d processes write the log of %s in %s already", maxWriters, daemon, folder)
}

// A logFile is one of a log's files.
type logFile struct {
	path string
	seq  uint64 // of its first record
	size int64
}

// list returns the files of a log, the oldest first.
func list(folder, stem string) ([]logFile, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	if len(entries) > maxInFolder {
		return nil, fmt.Errorf("%s holds %d files, too many to look through", folder, len(entries))
	}
	var files []logFile
	for _, e := range entries {
		seq, ok := fileSeq(stem, e.Name())
		if !ok {
			continue
		}
		info, err := e.Info()
		if err != nil {
			return nil, err
		}
		files = append(files, logFile{path: filepath.Join(folder, e.Name()), seq: seq, size: info.Size()})
	}
	slices.SortStableFunc(files, func(a, b logFile) int {
		if a.seq != b.seq {
			return int(min(max(int64(a.seq-b.seq), -1), 1))
		}
		return strings.Compare(a.path, b.path)
	})
	return files, nil
}

// Head is the position in a chain from which the next record continues.
type Head struct {
	Seq  uint64 // of the last record; 0: there is none
	Hash string // of its line; "" with Seq 0
}

// String returns the form that logs show and ParseHead parses.
func (h Head) String() string { return fmt.Sprintf("%d:%s", h.Seq, h.Hash) }

// ParseHead parses the form of String.
func ParseHead(s string) (Head, error) {
	seq, hash, ok := strings.Cut(s, ":")
	n, err := strconv.ParseUint(seq, 10, 64)
	if !ok || err != nil || len(hash) != 64 || strings.Trim(hash, "0123456789abcdef") != "" {
		return Head{}, fmt.Errorf("%q is not the head of an audit log: want SEQ:HASH, as the daemon's log shows it", s)
	}
	return Head{n, hash}, nil
}

// before is the state of a log found by a new process.
type before struct {
	head Head
	file string // the newest; "": none
	torn int    // bytes of an incomplete line at its end
}

// recoverHead reads the newest file to its end. It does not validate the lines: Verify does.
func recoverHead(files []logFile) (b before, err error) {
	for i := len(files) - 1; i >= 0; i-- {
		head, torn, err := tail(files[i])
		if err != nil {
			return b, err
		}
		if b.file == "" {
			b.file, b.torn = filepath.Base(files[i].path), torn
		}
		if head.Seq != 0 {
			b.head = head
			return b, nil
		}
		// It was begun, but nothing of it reached the disk: the previous file has the head.
	}
	return b, nil
}

func tail(f logFile) (h Head, torn int, err error) {
	file, err := os.Open(f.path)
	if err != nil {
		return h, 0, err
	}
	defer file.Close()
	in := bufio.NewReaderSize(file, 1<<16)
	next := f.seq
	for {
		line, err := readLine(in)
		switch {
		case errors.Is(err, io.EOF):
			return h, len(line), nil
		case err != nil:
			return h, 0, fmt.Errorf("%s: %w", f.path, err)
		}
		h = Head{next, hashOf(line)}
		next++
	}
}

// readLine returns the next line with its newline, or the rest without one and io.EOF. The caller
// owns the line.
func readLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > maxLine:
			return nil, fmt.Errorf("a line of more than %d bytes: this is not an audit log", maxLine)
		case !errors.Is(err, bufio.ErrBufferFull):
			return line, err
		}
	}
}

// beyondLimit returns the oldest files that must be removed to reduce the total to keep; the last
// two stay.
func beyondLimit(files []logFile, keep int64) []logFile {
	var total int64
	for _, f := range files {
		total += f.size
	}
	n := 0
	for ; n < len(files)-2 && keep > 0 && total > keep; n++ {
		total -= files[n].size
	}
	return files[:n]
}
