package membership

import "testing"

// The process joins with the first of MPI_Init and sessions, and leaves when MPI_Finalize was called and no session is open; without
// MPI_Init it never has to, as another session may follow, but may end.
func TestMembership(t *testing.T) {
	for _, c := range []struct {
		calls  string // i: MPI_Init, f: MPI_Finalize, o and c: a session is opened, closed; x: a call that must fail follows
		leaves bool
		idle   bool
	}{
		{"", false, false},
		{"i", false, false},
		{"if", true, true},
		{"o", false, false},
		{"oc", false, true},
		{"ococ", false, true},
		{"oci", false, false},
		{"ocif", true, true},
		{"oif", false, false},
		{"oifc", true, true},
		{"iofoc", false, false},
		{"iofocc", true, true},
		{"ixi", false, false},
		{"xf", false, false},
		{"ifxf", true, true},
		{"ifxi", true, true},
	} {
		var m Membership
		fails := false
		for _, call := range c.calls {
			var err error
			switch call {
			case 'i':
				err = m.Begin()
			case 'f':
				err = m.End()
			case 'o':
				err = m.Open()
			case 'c':
				m.Close()
			case 'x':
				fails = true
				continue
			}
			if (err != nil) != fails {
				t.Errorf("%s: %c returns %v", c.calls, call, err)
			}
			m.Joined = m.Joined || !fails
		}
		if m.IsOver() != c.leaves || m.IsIdle() != c.idle {
			t.Errorf("%s: leaves %v, idle %v; want %v, %v", c.calls, m.IsOver(), m.IsIdle(), c.leaves, c.idle)
		}
	}
	left := Membership{Model: Finalized, Joined: true, Left: true}
	if left.Open() == nil || left.IsOver() || left.IsIdle() {
		t.Errorf("%+v can open a session, or leaves again", left)
	}
}
