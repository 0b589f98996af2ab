package overlay

import (
	"context"
	"errors"
	"fmt"
	"unicode"
	"unicode/utf8"
)

// Bounds of published names. Names are compared byte by byte.
const (
	MaxServiceName = 128     // bytes of a published name
	MaxPort        = 1 << 10 // bytes of the text published under it
	MaxNamesPerJob = 64      // names that all processes of one job may have published at once
)

// Errors of published names.
var (
	ErrUnknownName = errors.New("name is not published")                    // it may be published later
	ErrNameTaken   = errors.New("name is published by another process now") // until that process withdraws it or ends
)

// Publication is a name that a process of some job has given to a text by which processes of other
// jobs can find it. It lasts until the process withdraws it or its registration ends.
type Publication struct {
	Name       string
	Port       string // the text; only processes interpret it
	Process    ProcessName
	Generation Generation // of the process
}

// Check returns what is wrong with the publication, or nil.
func (p Publication) Check() error {
	if err := CheckJobID(p.Process.Job); err != nil {
		return err
	}
	if err := CheckServiceName(p.Name); err != nil {
		return err
	}
	return CheckPort(p.Port)
}

// CheckServiceName returns why no text can be published under the name, or nil: a name is 1 to
// MaxServiceName bytes of printable UTF-8.
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

// CheckPort returns what is wrong with a text to be published, or nil. The error does not repeat
// the text, which may contain a secret.
func CheckPort(port string) error {
	if port == "" || len(port) > MaxPort {
		return fmt.Errorf("port of %d bytes, want 1 to %d", len(port), MaxPort)
	}
	if !utf8.ValidString(port) {
		return errors.New("the port is not UTF-8")
	}
	return nil
}

// Names lets a process be found by processes of other jobs, and find them. The node's helper
// implements the service. It is safe for concurrent use.
type Names interface {
	// Publish gives a name a text until the process withdraws it or ends. It fails with
	// ErrNameTaken, which names the other process, if another process has published the name; a
	// name of the process's own gets the new text. It fails with ErrOverloaded over the bounds.
	Publish(ctx context.Context, name, port string) error

	// Unpublish withdraws a name that this process has published; it fails with ErrUnknownName if
	// the process has not.
	Unpublish(ctx context.Context, name string) error

	// LookupName returns the text of a name, whichever process published it. Without wait it fails
	// with ErrUnknownName at once when there is no such name, otherwise when ctx ends.
	LookupName(ctx context.Context, name string, wait bool) (port string, err error)
}
