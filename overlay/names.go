package overlay

import (
	"context"
	"errors"
	"fmt"
	"unicode"
	"unicode/utf8"
)

// Bounds of published names. A name is told apart from others byte by byte.
const (
	MaxServiceName = 128     // bytes of a published name
	MaxPort        = 1 << 10 // bytes of what is published under it
	MaxNamesPerJob = 64      // names that all processes of one job may have published at once
)

// What goes wrong with published names.
var (
	ErrUnknownName = errors.New("name is not published")                    // it may yet be
	ErrNameTaken   = errors.New("name is published by another process now") // until that one takes it back or ends
)

// Publication is a name that a process of some job has given to a text by which
// it can be found from other jobs. It lasts until the process takes it back or
// its registration ends.
type Publication struct {
	Name       string
	Port       string // the text; nobody but processes reads it
	Process    ProcessName
	Generation Generation // of the process
}

// Check says what is wrong with the publication, or returns nil.
func (p Publication) Check() error {
	if err := CheckJobID(p.Process.Job); err != nil {
		return err
	}
	if err := CheckServiceName(p.Name); err != nil {
		return err
	}
	return CheckPort(p.Port)
}

// CheckServiceName says why text cannot be published under the name, or returns
// nil: a name is 1 to MaxServiceName bytes of UTF-8 that a terminal can show.
func CheckServiceName(name string) error {
	if name == "" || len(name) > MaxServiceName {
		return fmt.Errorf("service name of %d bytes, want 1 to %d", len(name), MaxServiceName)
	}
	if !utf8.ValidString(name) {
		return fmt.Errorf("service name %q is not UTF-8", name)
	}
	for _, r := range name {
		if !unicode.IsPrint(r) {
			return fmt.Errorf("service name %q holds %q, which cannot be shown", name, r)
		}
	}
	return nil
}

// CheckPort says what is wrong with a text to be published, or returns nil. The
// error does not repeat the text: it may hold a secret.
func CheckPort(port string) error {
	if port == "" || len(port) > MaxPort {
		return fmt.Errorf("port of %d bytes, want 1 to %d", len(port), MaxPort)
	}
	if !utf8.ValidString(port) {
		return errors.New("the port is not UTF-8")
	}
	return nil
}

// Names is what a process needs in order to be found by processes of other
// jobs, and to find them. The node's helper stands behind it. Safe for
// concurrent use.
type Names interface {
	// Publish gives a name a text until the process takes it back or ends. A name
	// that another process has published fails with ErrNameTaken, which says who;
	// the process's own is given the new text. ErrOverloaded over the bounds.
	Publish(ctx context.Context, name, port string) error

	// Unpublish takes a name back that this process has published; ErrUnknownName
	// if it has not.
	Unpublish(ctx context.Context, name string) error

	// LookupName returns the text of a name, whoever published it. Without wait it
	// fails with ErrUnknownName at once when there is no such name, else when ctx
	// ends.
	LookupName(ctx context.Context, name string, wait bool) (port string, err error)
}
