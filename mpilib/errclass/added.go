package errclass

import (
	"fmt"
	"sync"

	"github.com/isthmus-grid/isthmus/mpilib"
)

// Added holds the classes, codes and strings that a program has added (MPI-5.0, section 9.5). The
// zero Added has none. Safe for concurrent use.
type Added struct {
	mu      sync.Mutex
	classes []Class        // by number above LastCode: the class of each class, itself, and code, or removed
	texts   map[int]string // set by SetText
}

// removed stands for a class or code that was removed.
const removed = Class(-1)

// AddClass adds a class (MPI_Add_error_class), whose number is above LastCode.
func (a *Added) AddClass() Class {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := LastCode + 1 + Class(len(a.classes))
	a.classes = append(a.classes, c)
	return c
}

// AddCode adds a code of a class (MPI_Add_error_code). It fails with mpilib.ErrArg if there is no
// such class.
func (a *Added) AddCode(c Class) (code int, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if of, ok := a.class(int(c)); !ok || of != c {
		return 0, fmt.Errorf("errclass: %w: %d is no class", mpilib.ErrArg, c)
	}
	a.classes = append(a.classes, c)
	return int(LastCode) + len(a.classes), nil
}

// SetText sets the text of an added class or code (MPI_Add_error_string). It fails with
// mpilib.ErrArg for those of the standard, and for unknown ones.
func (a *Added) SetText(code int, text string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.class(code); !ok || code <= int(LastCode) {
		return fmt.Errorf("errclass: %w: %d was not added", mpilib.ErrArg, code)
	}
	if a.texts == nil {
		a.texts = map[int]string{}
	}
	a.texts[code] = text
	return nil
}

// RemoveClass removes an added class that has no codes any more (MPI_Remove_error_class). It fails with mpilib.ErrArg for others.
func (a *Added) RemoveClass(c Class) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, of := range a.classes {
		if of == c && i != int(c-LastCode)-1 {
			return fmt.Errorf("errclass: %w: class %d has codes; remove them first", mpilib.ErrArg, c)
		}
	}
	return a.remove(int(c), true)
}

// RemoveCode removes an added code (MPI_Remove_error_code). It fails with mpilib.ErrArg for others.
func (a *Added) RemoveCode(code int) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.remove(code, false)
}

// remove removes a class or code, with its text. mu is held.
func (a *Added) remove(code int, class bool) error {
	of, ok := a.class(code)
	if !ok || code <= int(LastCode) || (int(of) == code) != class {
		return fmt.Errorf("errclass: %w: %d was not added", mpilib.ErrArg, code)
	}
	delete(a.texts, code)
	a.classes[code-int(LastCode)-1] = removed
	for n := len(a.classes); n > 0 && a.classes[n-1] == removed; n-- {
		a.classes = a.classes[:n-1]
	}
	return nil
}

// RemoveText removes the text of an added class or code (MPI_Remove_error_string). It fails with mpilib.ErrArg where there is none.
func (a *Added) RemoveText(code int) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.texts[code]; !ok {
		return fmt.Errorf("errclass: %w: %d has no text", mpilib.ErrArg, code)
	}
	delete(a.texts, code)
	return nil
}

// LastUsed returns the greatest code (MPI_LASTUSEDCODE).
func (a *Added) LastUsed() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return int(LastCode) + len(a.classes)
}

// Class returns the class of a code, also of the standard's (MPI_Error_class), or mpilib.ErrArg.
func (a *Added) Class(code int) (Class, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c, ok := a.class(code); ok {
		return c, nil
	}
	return 0, fmt.Errorf("errclass: %w: no error code %d", mpilib.ErrArg, code)
}

// class is Class. mu is held.
func (a *Added) class(code int) (Class, bool) {
	if i := code - int(LastCode) - 1; i >= 0 {
		if i >= len(a.classes) || a.classes[i] == removed {
			return 0, false
		}
		return a.classes[i], true
	}
	return Class(code), code >= 0
}

// Text returns the text of a code (MPI_Error_string), empty for an added one without text, or
// mpilib.ErrArg.
func (a *Added) Text(code int) (string, error) {
	if _, err := a.Class(code); err != nil {
		return "", err
	}
	if code > int(LastCode) {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.texts[code], nil
	}
	text, ok := Class(code).Text()
	if !ok {
		text = fmt.Sprintf("error class %d", code)
	}
	return text, nil
}
