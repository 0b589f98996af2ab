package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// Read reads the rows of one benchmark's output. name is for errors.
func Read(name string, r io.Reader) ([]Row, error) {
	var rows []Row
	for dec := json.NewDecoder(r); ; {
		var row Row
		switch err := dec.Decode(&row); {
		case errors.Is(err, io.EOF):
			return rows, nil
		case err != nil:
			return nil, fmt.Errorf("%s: row %d: %w; it wants what a benchmark prints with --json", name, len(rows)+1, err)
		case row.Bench == "" || row.Figure == "":
			return nil, fmt.Errorf("%s: row %d names no benchmark or figure; it wants what a benchmark prints with --json", name, len(rows)+1)
		}
		rows = append(rows, row)
	}
}

// ReadFiles reads the rows of several files.
func ReadFiles(files []string) ([]Row, error) {
	var rows []Row
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		more, err := Read(name, f)
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
		rows = append(rows, more...)
	}
	return rows, nil
}
