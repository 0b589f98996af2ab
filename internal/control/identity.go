package control

import (
	"crypto/x509"
	"fmt"
	"net/url"
	"strings"

	"github.com/isthmus-grid/isthmus/overlay"
)

// Role is the role that a certificate gives its holder.
type Role uint8

// The roles.
const (
	RoleBroker Role = iota + 1
	RoleFrontal
	RoleProxy
	RoleHelper
	RoleAdmin
	RoleUser      // of the grid: on whose behalf jobs run (package grant)
	RoleScheduler // of a site's batch system: signs tokens for its allocations (package ca)
)

var roleNames = [...]string{RoleBroker: "broker", RoleFrontal: "frontal", RoleProxy: "proxy", RoleHelper: "helper", RoleAdmin: "admin", RoleUser: "user", RoleScheduler: "scheduler"}

// String returns the role's name, as in the daemon's.
func (r Role) String() string {
	if r == 0 || int(r) >= len(roleNames) {
		return fmt.Sprintf("role(%d)", uint8(r))
	}
	return roleNames[r]
}

// ParseRole parses the form of Role.String.
func ParseRole(s string) (Role, error) {
	for r := RoleBroker; r <= RoleScheduler; r++ {
		if r.String() == s {
			return r, nil
		}
	}
	return 0, fmt.Errorf("unknown role %q: want one of %q", s, roleNames[1:])
}

// Identity is the holder of a certificate.
type Identity struct {
	Role Role
	Site overlay.SiteID // of frontals, helpers and schedulers
	Name string         // node of a helper; name of a broker, proxy, admin or user
}

// String returns the form used in logs and errors: "helper sitea/a1", "frontal sitea", "proxy p1".
func (id Identity) String() string {
	switch id.Role {
	case RoleFrontal, RoleScheduler:
		return id.Role.String() + " " + string(id.Site)
	case RoleHelper:
		return "helper " + id.Node().String()
	}
	return id.Role.String() + " " + id.Name
}

// Key returns the form in certificates, tokens and revocation lists, which is that of String except
// for "helper sitea/a1": daemons of all versions know it.
func (id Identity) Key() string {
	if id.Role == RoleHelper {
		return id.Role.String() + " " + id.Node().Key()
	}
	return id.String()
}

// Node returns the node of a helper.
func (id Identity) Node() overlay.NodeID { return overlay.NodeID{Site: id.Site, Name: id.Name} }

// ParseIdentity parses the forms of String and Key.
func ParseIdentity(s string) (Identity, error) {
	role, name, ok := strings.Cut(s, " ")
	if !ok {
		return Identity{}, fmt.Errorf("identity %q: want ROLE NAME, such as helper sitea/a1", s)
	}
	for r := RoleBroker; r <= RoleScheduler; r++ {
		if r.String() != role {
			continue
		}
		switch r {
		case RoleFrontal, RoleScheduler:
			return Identity{Role: r, Site: overlay.SiteID(name)}, overlay.CheckName("site", name)
		case RoleHelper:
			node, err := overlay.ParseNodeID(name)
			return Identity{Role: r, Site: node.Site, Name: node.Name}, err
		}
		return Identity{Role: r, Name: name}, overlay.CheckName(role, name)
	}
	return Identity{}, fmt.Errorf("identity %q: unknown role; want one of %q", s, roleNames[1:])
}

// uriScheme marks the name in a certificate that holds an identity: isthmus:ROLE/NAME.
const uriScheme = "isthmus"

// URI returns the identity in the form of a subject alternative name of type URI (RFC 5280, section
// 4.2.1.6).
func (id Identity) URI() *url.URL {
	return &url.URL{Scheme: uriScheme, Opaque: strings.Replace(id.Key(), " ", "/", 1)}
}

// IdentityOf returns the identity in a certificate. It does not verify the issuer.
func IdentityOf(cert *x509.Certificate) (Identity, error) {
	for _, u := range cert.URIs {
		if u.Scheme == uriScheme {
			return ParseIdentity(strings.Replace(u.Opaque, "/", " ", 1))
		}
	}
	return Identity{}, fmt.Errorf("the certificate of %q carries no Isthmus identity", cert.Subject)
}

// accountScheme marks the name in a helper's certificate that is the one account on whose behalf it
// may act: isthmus-account:NAME.
const accountScheme = "isthmus-account"

// CheckMarkedAccount returns an error if an account's name cannot be in a certificate.
func CheckMarkedAccount(name string) error {
	err := overlay.CheckAccount(name)
	if err == nil && strings.ContainsAny(name, "%?#\\") {
		err = fmt.Errorf("account %q: a certificate cannot carry '%%', '?', '#' or '\\'", name)
	}
	return err
}

// AccountURI returns the mark of a helper's certificate that may act for only one account of its
// site, like that of a batch job's own helper.
func AccountURI(name string) *url.URL { return &url.URL{Scheme: accountScheme, Opaque: name} }

// AccountOf returns the one account for which a helper's certificate may act; "" for any of its
// node, as for helpers run by admins.
func AccountOf(cert *x509.Certificate) string {
	for _, u := range cert.URIs {
		if u.Scheme == accountScheme {
			return u.Opaque
		}
	}
	return ""
}

// projectScheme marks the names in a user's certificate that are the projects for which the user
// may work: isthmus-project:NAME.
const projectScheme = "isthmus-project"

// MaxProjects bounds the projects in one certificate.
const MaxProjects = 64

// ProjectURIs returns projects in the form of a user's certificate, besides Identity.URI, or an
// error if one is invalid.
func ProjectURIs(projects []string) ([]*url.URL, error) {
	if len(projects) > MaxProjects {
		return nil, fmt.Errorf("%d projects, at most %d are allowed in a certificate", len(projects), MaxProjects)
	}
	uris := make([]*url.URL, len(projects))
	for i, p := range projects {
		if err := overlay.CheckName("project", p); err != nil {
			return nil, err
		}
		uris[i] = &url.URL{Scheme: projectScheme, Opaque: p}
	}
	return uris, nil
}

// ProjectsOf returns the projects in a certificate, in its order.
func ProjectsOf(cert *x509.Certificate) ([]string, error) {
	var projects []string
	for _, u := range cert.URIs {
		if u.Scheme == projectScheme {
			projects = append(projects, u.Opaque)
		}
	}
	_, err := ProjectURIs(projects)
	return projects, err
}
