package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// A Fault is one error in a daemon's settings.
type Fault struct {
	Origin string // where: "broker.yaml:3:9", "flag --listen", "environment ISTHMUS_BROKER_LISTEN"
	Key    string // full key, as in "tls.cert" or "sites[2].name"; "": no single key
	Err    error  // what is wrong, and what to write instead

	missing bool // a required value is missing, or a named file does not exist
}

func (f Fault) Error() string {
	text := f.Err.Error()
	if f.Key != "" {
		text = f.Key + ": " + text
	}
	if f.Origin != "" {
		text = f.Origin + ": " + text
	}
	return text
}

// Unwrap returns the cause.
func (f Fault) Unwrap() error { return f.Err }

// Faults are all errors in a daemon's settings, in the order of the sources.
type Faults []Fault

func (f Faults) Error() string {
	if len(f) == 1 {
		return f[0].Error()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d faults in the settings:", len(f))
	for _, fault := range f {
		b.WriteString("\n  " + fault.Error())
	}
	return b.String()
}

// Unwrap returns the single faults, for errors.Is and errors.As.
func (f Faults) Unwrap() []error {
	errs := make([]error, len(f))
	for i := range f {
		errs[i] = f[i]
	}
	return errs
}

// invalid returns the faults except those about missing values and files: a sample of the settings
// in effect can be printed in spite of these.
func (f Faults) invalid() Faults {
	var wrong Faults
	for _, fault := range f {
		if !fault.missing {
			wrong = append(wrong, fault)
		}
	}
	return wrong
}

// Wrong is the error that a Check method returns for one invalid key; join several with
// errors.Join. The key is relative to the struct that is checked. The report adds the origin of the
// key's value.
func Wrong(key, format string, args ...any) error {
	return Fault{Key: key, Err: fmt.Errorf(format, args...)}
}

// WrongFile is Wrong for a key that names a file, and the error of reading it: nil without one, and
// where the file is not here or this user may not read it, for that is reported of every file.
func WrongFile(key string, err error) error {
	if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return Wrong(key, "%w", err)
}

// checkFaults converts the error of a Check method to faults below key.
func checkFaults(key string, err error, origin func(string) string) Faults {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all Faults
		for _, e := range joined.Unwrap() {
			all = append(all, checkFaults(key, e, origin)...)
		}
		return all
	}
	if f, ok := errors.AsType[Fault](err); ok {
		f.Key = join(key, f.Key)
		f.Origin = origin(f.Key)
		return Faults{f}
	}
	return Faults{{Origin: origin(key), Key: key, Err: err}}
}
