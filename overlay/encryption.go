package overlay

import "slices"

// Encryption is what a site wants encrypted of what its processes say to
// others. The processes encrypt a carrier if the site of either of them wants
// it. Within one node nothing ever is.
type Encryption struct {
	OtherSites bool     // carriers to other sites
	Inside     bool     // carriers between nodes of the site
	PlainWith  []SiteID // other sites to which OtherSites does not apply
}

// DefaultEncryption is the policy of a site whose admin says nothing.
func DefaultEncryption() Encryption { return Encryption{OtherSites: true} }

// Wants reports whether a carrier from the site here, whose policy e is, to a
// node of the site peer is to be encrypted. A peer whose site is not known counts
// as one of another site.
func (e Encryption) Wants(here, peer SiteID) bool {
	if here == peer && peer != "" {
		return e.Inside
	}
	return e.OtherSites && !slices.Contains(e.PlainWith, peer)
}
