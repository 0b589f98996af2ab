package control_test

import (
	"crypto/x509"
	"encoding/pem"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
)

func TestProjectsOfAUser(t *testing.T) {
	authority := newGrid(t).ca
	certPEM, _, err := authority.Issue(control.Identity{Role: control.RoleUser, Name: "alice"}, time.Now().Add(time.Hour), "climate", "fusion")
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(certPEM)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	projects, err := control.ProjectsOf(cert)
	if id, idErr := control.IdentityOf(cert); idErr != nil || id.String() != "user alice" || err != nil || !slices.Equal(projects, []string{"climate", "fusion"}) {
		t.Errorf("%v (%v), projects %q (%v)", id, idErr, projects, err)
	}
	if _, _, err := authority.Issue(control.Identity{Role: control.RoleUser, Name: "alice"}, time.Now().Add(time.Hour), "a b"); err == nil {
		t.Error("a project name with a blank was taken")
	}
	if _, _, err := authority.Issue(control.Identity{Role: control.RoleProxy, Name: "p1"}, time.Now().Add(time.Hour), "climate"); err == nil {
		t.Error("a proxy was given a project")
	}
}
