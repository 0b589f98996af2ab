package submit

import (
	"fmt"
	"strings"
	"testing"
)

func TestReadHostfile(t *testing.T) {
	for _, tc := range []struct{ text, want, fault string }{
		{text: "n1@paris slots=8\nlyon/n2 slots=4 max_slots=9 # near\n\n# n3@lyon\n", want: "paris/n1:8 lyon/n2:4"},
		{text: "n1@paris:8\nlyon/n2:4", want: "paris/n1:8 lyon/n2:4"},
		{text: "n1@paris\r\nn2@paris\r\n", want: "paris/n1:0 paris/n2:0"},
		{text: "", fault: "f names no host"},
		{text: "# nothing\n", fault: "f names no host"},
		{text: "n1@paris\nn2\n", fault: `f:2: host "n2": want NODE@SITE:RANKS`},
		{text: "n1@paris slots=x\n", fault: `f:1: host "n1@paris:x"`},
		{text: "n1@paris slots=2 slots=3\n", fault: `f:1: host "n1@paris:2:3"`},
		{text: "n1@paris core=2\n", fault: `f:1: "core=2": want a host and slots=RANKS`},
		{text: "n1@paris slots=2\nn1@paris slots=2\n", fault: "f: host paris/n1 is named twice"},
		{text: "n1@paris slots=2\nn2@paris\n", fault: `f: host "n2@paris": either all hosts have a number of ranks`},
	} {
		hosts, err := ReadHostfile(strings.NewReader(tc.text), "f")
		var got []string
		for _, h := range hosts {
			got = append(got, fmt.Sprintf("%v:%d", h.Node, h.Ranks))
		}
		if says := fmt.Sprint(err); strings.Join(got, " ") != tc.want || (err != nil) != (tc.fault != "") || !strings.Contains(says, tc.fault) && tc.fault != "" {
			t.Errorf("%q: %q, %v; want %q, %q", tc.text, got, err, tc.want, tc.fault)
		}
	}
}

func FuzzReadHostfile(f *testing.F) {
	f.Add("n1@paris slots=8\n")
	f.Fuzz(func(t *testing.T, text string) {
		hosts, err := ReadHostfile(strings.NewReader(text), "f")
		if (err == nil) == (len(hosts) == 0) {
			t.Errorf("%q: %d hosts, %v", text, len(hosts), err)
		}
	})
}
