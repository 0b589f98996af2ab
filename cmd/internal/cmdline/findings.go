package cmdline

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/isthmus-grid/isthmus/internal/daemon"
)

// A Finding is one error in a file, or something probably unintended.
type Finding struct {
	Severity string `json:"severity"` // error, warning or note
	File     string `json:"file"`
	Line     int    `json:"line,omitempty"`
	Column   int    `json:"column,omitempty"`
	Key      string `json:"key,omitempty"`
	Text     string `json:"text"`
}

// Severities.
const (
	Severe = "error"
	Minor  = "warning"
	Noted  = "note" // not an error: what the file leaves denied, and the line that permits it
)

func (f Finding) String() string {
	text := f.File
	for _, n := range []int{f.Line, f.Column} {
		if n > 0 {
			text += ":" + strconv.Itoa(n)
		}
	}
	text += ": " + f.Severity + ": "
	if f.Key != "" {
		text += f.Key + ": "
	}
	return text + f.Text
}

// Findings returns the faults of a file, all of one severity.
func Findings(file, severity string, faults daemon.Faults) []Finding {
	var all []Finding
	for _, f := range faults {
		one := Finding{Severity: severity, File: file, Key: f.Key, Text: f.Err.Error()}
		if place, ok := strings.CutPrefix(f.Origin, file+":"); ok {
			line, column, _ := strings.Cut(place, ":")
			one.Line, _ = strconv.Atoi(line)
			one.Column, _ = strconv.Atoi(column)
		}
		all = append(all, one)
	}
	return all
}

// PrintFindings prints what was found in a file of the kind, and returns the exit status for it: 0,
// 1 with warnings, 2 with errors.
func PrintFindings(w io.Writer, file, kind string, found []Finding, asJSON bool) int {
	status := 0
	for _, f := range found {
		status = max(status, map[string]int{Minor: 1, Severe: 2}[f.Severity])
	}
	if asJSON {
		line, err := json.Marshal(map[string]any{"file": file, "as": kind, "status": status, "findings": append([]Finding{}, found...)})
		if err != nil {
			panic(err) // texts and numbers
		}
		fmt.Fprintln(w, string(line))
		return status
	}
	for _, f := range found {
		fmt.Fprintln(w, f)
	}
	if status == 0 {
		fmt.Fprintf(w, "%s: ok (%s)\n", file, kind)
	}
	return status
}
