package control

import (
	"strconv"
	"strings"
)

// WithoutAddress returns err with a text that does not repeat that addr was dialled, for callers
// that prefix that themselves. errors.Is and errors.As see err unchanged.
func WithoutAddress(err error, addr string) error {
	text := err.Error()
	for _, said := range []string{"dial tcp " + addr + ": ", "dial " + addr + ": ", "dial tcp: "} {
		if cut := strings.Replace(text, said, "", 1); cut != text {
			return &reworded{err, cut}
		}
	}
	return err
}

// reworded is an error with another text.
type reworded struct {
	error
	text string
}

func (r *reworded) Error() string { return r.text }
func (r *reworded) Unwrap() error { return r.error }

// causeOf extracts the cause from the text of gRPC's connection errors, without gRPC's prefixes.
func causeOf(message string) string {
	quoted, ok := strings.CutPrefix(message, "connection error: desc = ")
	if !ok {
		return message
	}
	cause, err := strconv.Unquote(quoted)
	if err != nil {
		return message
	}
	cause = strings.TrimPrefix(cause, "transport: ")
	return strings.TrimPrefix(cause, "Error while dialing: ")
}
