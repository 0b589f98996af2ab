// Package nodepb contains the messages and calls of node services, generated from node.proto;
// package nodeservice serves the calls, and package submit makes them. What it has beside that converts
// words to what carries them: those of a system are bytes, and strings of messages are UTF-8 only. Likewise for the
// messages of package reserve.
package nodepb

//go:generate go run github.com/isthmus-grid/isthmus/internal/control/protogen node.proto

// Bytes returns words as messages carry them.
func Bytes(words []string) [][]byte {
	var all [][]byte
	for _, w := range words {
		all = append(all, []byte(w))
	}
	return all
}

// Words returns the words that a message carries.
func Words(carried [][]byte) []string {
	var all []string
	for _, w := range carried {
		all = append(all, string(w))
	}
	return all
}
