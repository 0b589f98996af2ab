package overlay

import "testing"

func TestEncryptionWants(t *testing.T) {
	trusting := Encryption{OtherSites: true, PlainWith: []SiteID{"b"}}
	for _, tc := range []struct {
		policy Encryption
		peer   SiteID // as seen from site a
		want   bool
	}{
		{DefaultEncryption(), "b", true},
		{DefaultEncryption(), "a", false},
		{DefaultEncryption(), "", true},
		{trusting, "b", false},
		{trusting, "c", true},
		{trusting, "a", false},
		{trusting, "", true},
		{Encryption{SameSite: true}, "a", true},
		{Encryption{SameSite: true}, "b", false},
		{Encryption{SameSite: true, OtherSites: true}, "b", true},
	} {
		if got := tc.policy.Wants("a", tc.peer); got != tc.want {
			t.Errorf("%+v, to %q: %v", tc.policy, tc.peer, got)
		}
	}
	// A process that does not know its site may be anywhere.
	if !DefaultEncryption().Wants("", "") {
		t.Error("two unknown sites are taken for one")
	}
}
