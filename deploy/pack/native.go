package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // makes them
	_ "github.com/goreleaser/nfpm/v2/rpm"
	"gopkg.in/yaml.v3"
)

// packages makes a deb and an rpm of each document in packages.yaml, and returns their
// names.
func (r *release) packages() (names []string, err error) {
	text, err := os.ReadFile(filepath.Join(r.top, "deploy/pack/packages.yaml"))
	if err != nil {
		return nil, err
	}
	// Paths in it are from the top of the source.
	back, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	if err := os.Chdir(r.top); err != nil {
		return nil, err
	}
	defer os.Chdir(back)
	for docs := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var doc yaml.Node
		if err := docs.Decode(&doc); errors.Is(err, io.EOF) {
			return names, nil
		} else if err != nil {
			return nil, fmt.Errorf("packages.yaml: %w", err)
		}
		one, err := yaml.Marshal(&doc)
		if err != nil {
			return nil, err
		}
		var head struct{ Name string }
		if err := doc.Decode(&head); err != nil {
			return nil, fmt.Errorf("packages.yaml: %w", err)
		}
		if head.Name == librariesPackage && !r.libraries {
			continue
		}
		for _, format := range []string{"deb", "rpm"} {
			name, err := r.pack(one, format)
			if err != nil {
				return nil, err
			}
			names = append(names, name)
		}
	}
}

// pack makes one package.
func (r *release) pack(doc []byte, format string) (name string, err error) {
	values := map[string]string{"VERSION": r.version, "ARCH": r.arch, "BIN": r.bin}
	doc = []byte(os.Expand(string(doc), func(key string) string { return values[key] }))
	all, err := nfpm.Parse(bytes.NewReader(doc))
	if err != nil {
		return "", fmt.Errorf("packages.yaml: %w", err)
	}
	all.MTime = r.timestamp
	info, err := all.Get(format)
	if err != nil {
		return "", err
	}
	info = nfpm.WithDefaults(info)
	maker, err := nfpm.Get(format)
	if err != nil {
		return "", err
	}
	if r.key != nil {
		info.Deb.Signature.KeyFile, info.Deb.Signature.KeyPassphrase = r.key.file, os.Getenv(envPassphrase)
		info.RPM.Signature.KeyFile, info.RPM.Signature.KeyPassphrase = r.key.file, os.Getenv(envPassphrase)
	}
	name = maker.ConventionalFileName(info)
	info.Target = filepath.Join(r.out, name)
	f, err := os.Create(info.Target)
	if err != nil {
		return "", err
	}
	err = errors.Join(maker.Package(info, f), f.Close())
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return name, nil
}
