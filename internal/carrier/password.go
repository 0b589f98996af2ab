package carrier

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// maxPassword bounds a file with a password.
const maxPassword = 4096

// ReadPassword reads the password of an HTTP proxy from a file of one line, whose ending does not
// belong to it.
func ReadPassword(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxPassword+1))
	if err != nil {
		return "", err
	}
	password, err := passwordIn(text)
	if err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	return password, nil
}

func passwordIn(text []byte) (string, error) {
	password := strings.TrimRight(string(text), "\r\n")
	switch {
	case len(text) > maxPassword:
		return "", fmt.Errorf("more than %d bytes; write the password into it, and nothing else", maxPassword)
	case password == "":
		return "", errors.New("the file is empty; write the password into it, or remove the key password_file")
	case strings.ContainsAny(password, "\r\n"):
		return "", errors.New("the file has several lines; write the password into it, and nothing else")
	}
	return password, nil
}
