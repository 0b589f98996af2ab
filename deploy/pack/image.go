package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// anyone is the user and group that a daemon runs as in its image.
const anyone = "65534:65534"

// images makes a file of an image for each daemon, as `docker load` and `podman load` take
// it: the static program and nothing else, its settings to be mounted at /etc/isthmus. The image
// isthmus is the program that is all of them, and takes its words.
func (r *release) images() (names []string, err error) {
	entries := map[string][]string{"isthmus": nil}
	for _, d := range daemons {
		entries["isthmus-"+d] = []string{"--config", "/etc/isthmus/" + d + ".yaml"}
	}
	for _, program := range slices.Sorted(maps.Keys(entries)) {
		img, err := r.image(program, entries[program])
		if err != nil {
			return nil, fmt.Errorf("image of %s: %w", program, err)
		}
		tag, err := name.NewTag(program + ":" + tagOf(r.version))
		if err != nil {
			return nil, err
		}
		file := fmt.Sprintf("%s_%s_%s.oci.tar", program, r.version, r.arch)
		if err := tarball.WriteToFile(filepath.Join(r.out, file), tag, img); err != nil {
			return nil, err
		}
		names = append(names, file)
	}
	return names, nil
}

func (r *release) image(program string, words []string) (v1.Image, error) {
	var files bytes.Buffer
	w := tar.NewWriter(&files)
	if err := errors.Join(r.add(w, "usr/bin/"+program, filepath.Join(r.bin, program), 0o755), w.Close()); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files.Bytes())), nil })
	if err != nil {
		return nil, err
	}
	img, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", r.arch, v1.Time{Time: r.timestamp}
	config.Config = v1.Config{
		Entrypoint: append([]string{"/usr/bin/" + program}, words...),
		User:       anyone,
		StopSignal: "SIGTERM",
		Labels:     map[string]string{"org.opencontainers.image.title": program, "org.opencontainers.image.version": r.version, "org.opencontainers.image.licenses": "Apache-2.0"},
	}
	return mutate.ConfigFile(img, config)
}

// tagOf is a version as a tag may have it.
func tagOf(version string) string {
	return string(bytes.Map(func(c rune) rune {
		if c == '~' || c == '+' {
			return '-'
		}
		return c
	}, []byte(version)))
}
