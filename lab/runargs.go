package lab

import (
	"errors"
	"strings"
)

// errRunUsage describes the arguments that RunArgs accepts.
var errRunUsage = errors.New("run: want FILE [--at SITE/HOST] -- COMMAND [ARGUMENT...]")

// RunArgs splits the arguments of "isthmus-lab run": FILE [--at SITE/HOST] -- COMMAND
// [ARGUMENT...]. at is the value of a flag before FILE; flag parsers leave the flag after it, and
// the --, to this function.
func RunArgs(at string, words []string) (file, host string, argv []string, err error) {
	if len(words) < 2 {
		return "", "", nil, errRunUsage
	}
	file, words = words[0], words[1:]
	switch value, joined := strings.CutPrefix(words[0], "--at="); {
	case joined:
		at, words = value, words[1:]
	case words[0] == "--at" && len(words) > 1:
		at, words = words[1], words[2:]
	}
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	if len(words) == 0 || strings.HasPrefix(words[0], "-") {
		return "", "", nil, errRunUsage
	}
	return file, at, words, nil
}
