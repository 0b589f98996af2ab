package audit

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Chain is one log's files, the oldest first: of one daemon, and of one of its processes if two
// wrote at the same time.
type Chain struct {
	Name  string   // as "proxy-p1"
	Files []string // paths
}

var named = regexp.MustCompile(`^(.+)\.[0-9]{12,20}\.[0-9]{8}\.jsonl$`)

// Chains sorts files into chains. A folder stands for all logs in it. A file whose name is not that
// of a log file is a chain of its own.
func Chains(paths []string) ([]Chain, error) {
	byName := map[string][]string{}
	add := func(path string) {
		name := path
		if m := named.FindStringSubmatch(filepath.Base(path)); m != nil {
			name = filepath.Join(filepath.Dir(path), m[1])
		}
		if !slices.Contains(byName[name], path) {
			byName[name] = append(byName[name], path)
		}
	}
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			add(path)
			continue
		}
		entries, err := os.ReadDir(path)
		if err != nil {
			return nil, err
		}
		found := false
		for _, e := range entries {
			if named.MatchString(e.Name()) {
				add(filepath.Join(path, e.Name()))
				found = true
			}
		}
		if !found {
			return nil, fmt.Errorf("%s: no audit log in this folder", path)
		}
	}
	var out []Chain
	for name, files := range byName {
		slices.Sort(files) // the numbers have leading zeros
		out = append(out, Chain{name, files})
	}
	slices.SortStableFunc(out, func(a, b Chain) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// maxFindings bounds the findings in a report: further ones add nothing.
const maxFindings = 100

// Report is the result of Verify.
type Report struct {
	Name     string   `json:"name"`
	Files    int      `json:"files"`
	Records  uint64   `json:"records"`
	First    uint64   `json:"first"`              // number of the first record; 1 unless older files are missing
	Head     string   `json:"head"`               // of the last record
	Lost     uint64   `json:"lost"`               // records that the daemon reports it could not write
	Faults   []string `json:"faults,omitempty"`   // what was changed, is missing or cannot be read
	Warnings []string `json:"warnings,omitempty"` // what a crash explains
}

// Verify reads a chain and checks that every record follows from the previous one. If want is
// given, the chain must contain it: a head from the daemon's log. The error is about reading files.
func Verify(c Chain, want Head) (Report, error) {
	v := verifier{report: Report{Name: c.Name, Files: len(c.Files)}, want: want}
	for _, path := range c.Files {
		if err := v.path(path); err != nil {
			return v.report, err
		}
	}
	if v.torn != "" {
		v.warn("%s", v.torn)
	}
	v.report.Head = v.head.String()
	if want.Seq != 0 && !v.met {
		v.fault("record %d, of which the head %v is known, is not there", want.Seq, want)
	}
	return v.report, nil
}

type verifier struct {
	report Report
	head   Head
	want   Head
	met    bool   // want was found
	torn   string // the previous file ends in the middle of a line, and no record has accounted for that yet
}

func (v *verifier) fault(format string, args ...any) {
	if len(v.report.Faults) < maxFindings {
		v.report.Faults = append(v.report.Faults, Printable(fmt.Sprintf(format, args...)))
	}
}

func (v *verifier) warn(format string, args ...any) {
	if len(v.report.Warnings) < maxFindings {
		v.report.Warnings = append(v.report.Warnings, Printable(fmt.Sprintf(format, args...)))
	}
}

func (v *verifier) path(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return v.read(filepath.Base(path), f)
}

func (v *verifier) read(name string, r io.Reader) error {
	in := bufio.NewReaderSize(r, 1<<16)
	before := v.torn // must be accounted for in this file's first two records
	v.torn = ""
	for n := 1; ; n++ {
		line, err := readLine(in)
		switch {
		case errors.Is(err, io.EOF) && len(line) == 0:
			if before != "" && n <= 2 {
				v.torn = before // this file does not account for it; the next has to
			}
			return nil
		case errors.Is(err, io.EOF):
			v.torn = fmt.Sprintf("%s:%d: %d bytes of an unfinished line", name, n, len(line))
			return nil
		case err != nil:
			return fmt.Errorf("%s:%d: %w", name, n, err)
		}
		at := fmt.Sprintf("%s:%d", name, n)
		event := v.line(at, line)
		if before != "" && event == Recovered {
			v.warn("%s; accounted for at %s", before, at)
			before = ""
		}
		if before != "" && n == 2 {
			v.fault("%s, and %s does not account for it", before, name)
			before = ""
		}
	}
}

// line checks one line and returns its event.
func (v *verifier) line(at string, line []byte) Event {
	r, err := Parse(line)
	hash := hashOf(line)
	v.report.Records++
	switch {
	case err != nil:
		v.fault("%s: %v", at, err)
		v.head = Head{v.head.Seq + 1, hash}
		return ""
	case v.report.First == 0:
		v.report.First = r.Seq
		if r.Seq != 1 {
			v.warn("%s: the log begins with record %d; what was before is not in these files", at, r.Seq)
		} else if r.Prev != "" {
			v.fault("%s: record 1 has one before it", at)
		}
	case r.Seq != v.head.Seq+1:
		v.fault("%s: record %d follows record %d", at, r.Seq, v.head.Seq)
	case r.Prev != v.head.Hash:
		v.fault("%s: record %d does not follow from the line before, one of which was changed", at, r.Seq)
	}
	v.head = Head{r.Seq, hash}
	if r.Seq == v.want.Seq {
		if v.met = true; hash != v.want.Hash {
			v.fault("%s: record %d is not the one that the head %v is of", at, r.Seq, v.want)
		}
	}
	if r.Event == Lost {
		v.report.Lost += r.Count
	}
	return r.Event
}
