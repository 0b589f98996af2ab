package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
	"github.com/isthmus-grid/isthmus/cmd/internal/runjob"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/pki/ca"
)

// A place is where a new certificate goes.
type place struct {
	out    string   // a folder, for files named after the holder
	files  ca.Files // else these
	broker string   // "" if no settings name one, as with a helper's

	daemon string // with settings: the role that the token must have
	site   string // of a frontal
}

// placeOf returns the place named by the flags of ca enroll, or the usual one for the identity.
func placeOf(c *cli.Context, identity string) (place, error) {
	if c.IsSet("config") && c.IsSet("out") {
		return place{}, cmdline.Usage("ca enroll: give either --config or --out")
	}
	if file := c.String("config"); file != "" {
		p, err := placeIn(file)
		if err != nil {
			return p, err
		}
		if err := p.accepts(identity); err != nil {
			return p, fmt.Errorf("%s: %w", file, err)
		}
		return p, nil
	}
	if strings.HasPrefix(identity, control.RoleUser.String()+" ") && !c.IsSet("out") {
		files, err := runjob.UserFiles()
		if err != nil {
			return place{}, fmt.Errorf("%w; give --out", err)
		}
		return place{files: files}, nil
	}
	return place{out: c.String("out")}, nil
}

// folders returns the folders that are written to.
func (p place) folders() []string {
	if p.files == (ca.Files{}) {
		return []string{p.out}
	}
	return []string{filepath.Dir(p.files.Key), filepath.Dir(p.files.Cert), filepath.Dir(p.files.CA)}
}

// placeIn reads a daemon's settings, of which the certificate may still be missing.
func placeIn(file string) (place, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return place{}, err
	}
	kind, err := kindOf(fileKinds(), file, text)
	if err != nil {
		return place{}, fmt.Errorf("%s: %w", file, err)
	}
	if !slices.Contains([]string{"frontal", "proxy", "helper"}, kind.name) {
		return place{}, fmt.Errorf("%s: want settings of a frontal, proxy or helper, but these are for a %s; a broker's certificate is created offline (isthmus ca issue)", file, kind.name)
	}
	s, err := parseSettings(kind.name, file, text)
	if err != nil {
		return place{}, err
	}
	p := place{daemon: kind.name, site: s.site, files: s.files}
	if len(s.brokers) > 0 {
		p.broker = s.brokers[0]
	}
	return p, nil
}

// accepts returns why a token for that identity is not for this place, before the token is used up.
func (p place) accepts(identity string) error {
	if role, name, _ := strings.Cut(identity, " "); role != p.daemon || p.site != "" && name != p.site {
		want := p.daemon
		if p.site != "" {
			want += " " + p.site
		}
		return fmt.Errorf("the token is for %s, but the settings are for %s; the token was not used", identity, want)
	}
	return nil
}
