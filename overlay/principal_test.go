package overlay

import (
	"errors"
	"strings"
	"testing"
)

func TestPrincipals(t *testing.T) {
	long := strings.Repeat("a", MaxAccountLen)
	for _, tc := range []struct {
		p     Principal
		text  string
		fault string // error of Check
		not   string // error of CheckVouched by sitea, if Check has none
	}{
		{Principal{}, "unknown", "", ""},
		{Principal{User: "alice"}, "alice", "", "sitea vouches for accounts of its own, ACCOUNT@sitea, not for alice"},
		{Principal{User: "alice", Project: "climate"}, "alice for climate", "", "not for alice for climate"},
		{AccountAt("Alice$x", "sitea"), "Alice$x@sitea", "", ""},
		{AccountAt("1000", "siteb"), "1000@siteb", "", "not for 1000@siteb"},
		{AccountAt(long, "sitea"), long + "@sitea", "", ""},
		{AccountAt(long+"a", "sitea"), long + "a@sitea", "is no user's name", ""},
		{Principal{User: "alice@sitea", Project: "climate"}, "alice@sitea for climate", `only a grant names a project`, ""},
		{Principal{Project: "climate"}, "unknown", "user name is empty", ""},
		{Principal{User: "alice@sitea@siteb"}, "alice@sitea@siteb", "site name", ""},
		{Principal{User: "al\nice@sitea"}, "al\nice@sitea", "is no user's name", ""},
		{Principal{User: "Alice"}, "Alice", "user name", ""},
		{Principal{User: "alice", Project: "a b"}, "alice for a b", "project name", ""},
	} {
		if got := tc.p.String(); got != tc.text {
			t.Errorf("String() = %q, want %q", got, tc.text)
		}
		err := tc.p.Check()
		if (err == nil) != (tc.fault == "") || err != nil && !strings.Contains(err.Error(), tc.fault) {
			t.Errorf("%v: %v, want %q", tc.p, err, tc.fault)
		}
		vouched := tc.p.CheckVouched("sitea")
		switch {
		case tc.fault != "" && vouched == nil:
			t.Errorf("%v was vouched for", tc.p)
		case tc.fault == "" && (vouched == nil) != (tc.not == ""), tc.not != "" && (!errors.Is(vouched, ErrForbidden) || !strings.Contains(vouched.Error(), tc.not)):
			t.Errorf("%v: %v, want %q", tc.p, vouched, tc.not)
		}
	}
}
