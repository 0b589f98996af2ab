package control

import (
	"crypto/x509"
	"fmt"
	"net/url"
	"strings"

	"github.com/isthmus-grid/isthmus/overlay"
)

// Role is what a certificate lets its holder be.
type Role uint8

// The roles.
const (
	RoleBroker Role = iota + 1
	RoleFrontal
	RoleProxy
	RoleHelper
	RoleAdmin
	RoleUser      // of the grid: in whose name jobs work (package grant)
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

// ParseRole reads the form of Role.String.
func ParseRole(s string) (Role, error) {
	for r := RoleBroker; r <= RoleScheduler; r++ {
		if r.String() == s {
			return r, nil
		}
	}
	return 0, fmt.Errorf("role %q: known are %q", s, roleNames[1:])
}

// Identity says who holds a certificate.
type Identity struct {
	Role Role
	Site overlay.SiteID // of frontals, helpers and schedulers
	Name string         // node of a helper; name of a broker, proxy, admin or user
}

// String names the holder as logs and errors do: "helper sitea/a1",
// "frontal sitea", "proxy p1".
func (id Identity) String() string {
	switch id.Role {
	case RoleFrontal, RoleScheduler:
		return id.Role.String() + " " + string(id.Site)
	case RoleHelper:
		return "helper " + id.Node().String()
	}
	return id.Role.String() + " " + id.Name
}

// Node returns the node of a helper.
func (id Identity) Node() overlay.NodeID { return overlay.NodeID{Site: id.Site, Name: id.Name} }

// ParseIdentity reads the form of String.
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
	return Identity{}, fmt.Errorf("identity %q: unknown role; known are %q", s, roleNames[1:])
}

// uriScheme marks the name in a certificate that holds an identity:
// isthmus:ROLE/NAME.
const uriScheme = "isthmus"

// URI returns the identity as the certificate carries it, in a subject
// alternative name of type URI (RFC 5280, section 4.2.1.6).
func (id Identity) URI() *url.URL {
	return &url.URL{Scheme: uriScheme, Opaque: strings.Replace(id.String(), " ", "/", 1)}
}

// IdentityOf reads the identity that a certificate carries. It does not check
// who issued it.
func IdentityOf(cert *x509.Certificate) (Identity, error) {
	for _, u := range cert.URIs {
		if u.Scheme == uriScheme {
			return ParseIdentity(strings.Replace(u.Opaque, "/", " ", 1))
		}
	}
	return Identity{}, fmt.Errorf("the certificate of %q carries no Isthmus identity", cert.Subject)
}

// accountScheme marks the name in a helper's certificate that is the one account it
// speaks for: isthmus-account:NAME.
const accountScheme = "isthmus-account"

// CheckMarkedAccount says what is wrong with an account's name as a certificate carries
// it, or returns nil.
func CheckMarkedAccount(name string) error {
	err := overlay.CheckAccount(name)
	if err == nil && strings.ContainsAny(name, "%?#\\") {
		err = fmt.Errorf("account %q: a certificate cannot carry '%%', '?', '#' or '\\'", name)
	}
	return err
}

// AccountURI returns the mark of a helper's certificate that speaks for one account of
// its site alone, as that of a batch job's own helper does.
func AccountURI(name string) *url.URL { return &url.URL{Scheme: accountScheme, Opaque: name} }

// AccountOf returns the one account for which a helper's certificate lets it speak; ""
// for any of its node, as admins' helpers do.
func AccountOf(cert *x509.Certificate) string {
	for _, u := range cert.URIs {
		if u.Scheme == accountScheme {
			return u.Opaque
		}
	}
	return ""
}

// projectScheme marks the names in a user's certificate that are the projects
// which the user may work for: isthmus-project:NAME.
const projectScheme = "isthmus-project"

// MaxProjects bounds the projects that one certificate names.
const MaxProjects = 64

// ProjectURIs returns projects as a user's certificate carries them, besides
// Identity.URI, or says what is wrong with one.
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

// ProjectsOf returns the projects that a certificate names, in its order.
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
