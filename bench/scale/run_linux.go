package scale

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/isthmus-grid/isthmus/bench"
)

// Run measures and prints the rows. Missing a target is not an error.
func Run(ctx context.Context, o Options) error {
	if err := o.Check(); err != nil {
		return err
	}
	var rows []bench.Row
	if o.Links > 0 {
		fmt.Fprintf(o.Err, "proxy: %d links share %v\n", o.Links, o.Rate)
		f, err := o.measureProxy(ctx)
		if err != nil {
			return fmt.Errorf("proxy: %w", err)
		}
		rows = append(rows, f.rows(o)...)
	}
	if o.Helpers > 0 {
		fmt.Fprintf(o.Err, "frontal: %d helpers with %d processes\n", o.Helpers, o.Processes)
		f, err := o.measureFrontal(ctx)
		if err != nil {
			return fmt.Errorf("frontal: %w", err)
		}
		rows = append(rows, f.rows(o)...)
	}
	return bench.Write(o.Out, o.JSON, rows...)
}

// useOf reads a process's use.
func useOf(pid int) (use, error) {
	var u use
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return u, err
	}
	kib, err := field(string(status), "VmRSS:")
	if err != nil {
		return u, err
	}
	u.rss = kib * 1024
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	files, err := os.ReadDir(dir)
	if err != nil {
		return u, err
	}
	u.descriptors = len(files)
	for _, f := range files {
		if to, _ := os.Readlink(dir + "/" + f.Name()); strings.HasPrefix(to, "pipe:") {
			u.pipes++
		}
	}
	return u, nil
}

// socketMemory returns the size of the buffers of all TCP sockets of this network namespace and
// others, in bytes.
func socketMemory() (float64, error) {
	text, err := os.ReadFile("/proc/net/sockstat")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "TCP:") {
			pages, err := field(line, "mem")
			return pages * float64(os.Getpagesize()), err
		}
	}
	return 0, errors.New("/proc/net/sockstat says nothing of TCP")
}

// field returns the number after a word.
func field(text, word string) (float64, error) {
	_, rest, ok := strings.Cut(text, word)
	if words := strings.Fields(rest); ok && len(words) > 0 {
		return strconv.ParseFloat(words[0], 64)
	}
	return 0, fmt.Errorf("no %s in %.40q", word, text)
}
