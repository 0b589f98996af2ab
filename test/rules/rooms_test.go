package rules

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// rooms says for each package below a composed one which of its siblings it may import.
// One that is missing here fails the test: whoever adds a room decides where it stands.
var rooms = map[string][]string{
	"frontal/lru":       nil,
	"frontal/uplink":    nil,
	"frontal/directory": {"frontal/lru", "frontal/uplink"},
	"frontal/gateway":   {"frontal/directory", "frontal/lru", "frontal/uplink"},
	"frontal/measure":   nil,
	"frontal/permit":    nil,
	"frontal/outcomes":  nil,
	"frontal/ledger":    nil,

	"connhelper/packetsize": nil,
	"connhelper/race":       nil,
	"connhelper/reserve":    nil,
	"connhelper/traffic":    nil,
}

// composed are the packages whose rooms the table has.
var composed = []string{"connhelper", "frontal"}

func TestRoomsImportDownwards(t *testing.T) {
	said := map[string]bool{} // a package is listed once per system
	for _, p := range list(t) {
		for _, complaint := range roomComplaints(p) {
			if !said[complaint] {
				t.Error(complaint)
			}
			said[complaint] = true
		}
	}
}

// The table must be able to complain.
func TestRoomRulesComplain(t *testing.T) {
	for _, c := range []struct{ from, to, want string }{
		{"frontal/uplink", "frontal/directory", "frontal/uplink imports frontal/directory"},
		{"frontal/measure", "frontal/permit", "frontal/measure imports frontal/permit"},
		{"frontal/attic", "overlay", "frontal/attic is no room yet"},
		{"frontal/gateway", "frontal/directory", ""},
		{"frontal", "frontal/gateway", ""},
		{"frontal/uplink", "internal/control", ""},
	} {
		got := roomComplaints(pkg{ImportPath: labtest.Module + "/" + c.from, Imports: []string{labtest.Module + "/" + c.to}})
		if text := strings.Join(got, "\n"); c.want == "" && text != "" || !strings.Contains(text, c.want) {
			t.Errorf("%s imports %s: complaint %q, want %q", c.from, c.to, text, c.want)
		}
	}
}

// roomComplaints lists which siblings a room imports and should not.
func roomComplaints(p pkg) (all []string) {
	from, _ := folder(p.ImportPath)
	if !slices.Contains(composed, top(from)) || from == top(from) {
		return nil
	}
	may, known := rooms[from]
	if !known {
		return []string{fmt.Sprintf("%s is no room yet; add it to rooms", from)}
	}
	for _, path := range p.Imports {
		to, _ := folder(path)
		if top(to) == top(from) && !slices.Contains(may, to) {
			all = append(all, fmt.Sprintf("%s imports %s: rooms import downwards only, as package %s says", from, to, top(from)))
		}
	}
	return all
}
