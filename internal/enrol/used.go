package enrol

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Used remembers on disk which tokens were used, until they expire, so that a
// restart does not make them good again. Safe for concurrent use; one process at
// a time has the file.
//
// The file has a line for each use: the token's nonce and its expiry in Unix
// milliseconds.
type Used struct {
	max int

	mu   sync.Mutex // guards the fields below
	f    *os.File
	uses map[string]use // by nonce
}

type use struct {
	times   int
	expires time.Time
}

// errUsed is what Take says of a token that works once.
var errUsed = errors.New("the token was used already; each works once, ask the keeper of the CA for another")

// maxRemembered bounds the tokens that were used and have not expired.
const maxRemembered = 100_000

// OpenUsed reads the file, writes it anew without what has expired, and makes
// it if it is not there.
func OpenUsed(file string, now time.Time) (*Used, error) {
	u := &Used{max: maxRemembered, uses: map[string]use{}}
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("used tokens: %w", err)
	}
	var kept bytes.Buffer
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		nonce, at, ok := strings.Cut(lines.Text(), " ")
		ms, err := strconv.ParseInt(at, 10, 64)
		if !ok || err != nil || nonce == "" {
			// A torn last line is of a use that was not answered: no certificate
			// came of it. Anything else is not ours.
			if !lines.Scan() && !bytes.HasSuffix(text, []byte("\n")) {
				break
			}
			return nil, fmt.Errorf("used tokens: %s: line %q is none of a nonce and a time; is this the right file?", file, nonce)
		}
		if expires := time.UnixMilli(ms); now.Before(expires) {
			u.uses[nonce] = use{u.uses[nonce].times + 1, expires}
			fmt.Fprintln(&kept, lines.Text())
		}
	}
	if err := control.WriteFile(file, kept.Bytes(), 0o600); err != nil {
		return nil, fmt.Errorf("used tokens: %w", err)
	}
	if u.f, err = os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		return nil, fmt.Errorf("used tokens: %w", err)
	}
	return u, nil
}

// Take counts a use of a token that works so many times until it expires. It
// returns nil once the use is on disk.
func (u *Used) Take(nonce string, times int, expires, now time.Time) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	had := u.uses[nonce]
	if had.times >= times {
		if times == 1 {
			return errUsed
		}
		return fmt.Errorf("the token was used %d times already, all that it is good for", had.times)
	}
	if len(u.uses) >= u.max {
		for n, other := range u.uses {
			if now.After(other.expires) {
				delete(u.uses, n)
			}
		}
		if len(u.uses) >= u.max {
			return fmt.Errorf("%w: %d used tokens are remembered, the limit, until the first expires", overlay.ErrOverloaded, u.max)
		}
	}
	if _, err := fmt.Fprintf(u.f, "%s %d\n", nonce, expires.UnixMilli()); err != nil {
		return fmt.Errorf("the use of the token cannot be kept: %w", err)
	}
	if err := u.f.Sync(); err != nil {
		return fmt.Errorf("the use of the token cannot be kept: %w", err)
	}
	u.uses[nonce] = use{had.times + 1, expires}
	return nil
}

// Close closes the file.
func (u *Used) Close() error { return u.f.Close() }
