package replica

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ErrReplicated is the error of what ranks with replicas cannot do.
var ErrReplicated = errors.New("not for ranks with replicas")

// errorKinds begin the data of a point at which the deciding replica has found an error. All replicas get one that wraps the same of
// these, for programs go on differently after them.
var errorKinds = []struct {
	prefix string
	error  error
}{
	{"expired: ", context.DeadlineExceeded},
	{"cancelled: ", context.Canceled},
	{"error: ", nil},
}

// AppendIndices returns the data of a point at which numbers are chosen, or choosing them has failed. It holds as many of
// the first numbers as a point has room for.
func AppendIndices(found []int, failed error) string {
	for _, f := range errorKinds {
		if failed != nil && (f.error == nil || errors.Is(failed, f.error)) {
			text := f.prefix + failed.Error()
			return text[:min(len(text), MaxData)]
		}
	}
	var b []byte
	for _, i := range found {
		end := len(b)
		if b = append(strconv.AppendInt(b, int64(i), 10), ' '); len(b) > MaxData {
			return string(b[:end])
		}
	}
	return string(b)
}

// ParseIndices returns the numbers of a point's data, or the error that the deciding replica has found.
func ParseIndices(data string) (found []int, err error) {
	for _, f := range errorKinds {
		why, failed := strings.CutPrefix(data, f.prefix)
		switch {
		case failed && f.error == nil:
			return nil, fmt.Errorf("another one decides, and found: %s", why)
		case failed:
			return nil, fmt.Errorf("another one decides, and found: %w", f.error)
		}
	}
	for _, field := range strings.Fields(data) {
		i, err := strconv.Atoi(field)
		if err != nil {
			return nil, err
		}
		found = append(found, i)
	}
	return found, nil
}
