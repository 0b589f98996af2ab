package overlay

import "slices"

// Encryption is a site's policy on encrypting the traffic of its processes. The processes encrypt a
// carrier if the site of either of them wants it. Within one node nothing is encrypted.
type Encryption struct {
	OtherSites bool     // carriers to other sites
	SameSite   bool     // carriers between nodes of the site
	PlainWith  []SiteID // other sites to which OtherSites does not apply
}

// DefaultEncryption returns the policy of a site whose admin sets none.
func DefaultEncryption() Encryption { return Encryption{OtherSites: true} }

// Wants reports whether a carrier from the site own, whose policy e is, to a node of the site peer
// must be encrypted. An unknown peer site counts as another site.
func (e Encryption) Wants(own, peer SiteID) bool {
	if own == peer && peer != "" {
		return e.SameSite
	}
	return e.OtherSites && !slices.Contains(e.PlainWith, peer)
}
