package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// tarball makes an archive of the programs, their pages, sample settings, units and documents, for who
// installs by hand.
func (r *release) tarball() ([]string, error) {
	base := fmt.Sprintf("isthmus_%s_linux_%s", r.version, r.arch)
	f, err := os.Create(filepath.Join(r.out, base+".tar.gz"))
	if err != nil {
		return nil, err
	}
	zip, _ := gzip.NewWriterLevel(f, gzip.BestCompression) // the level is one that there is
	w := tar.NewWriter(zip)
	err = r.fill(w, base)
	return []string{base + ".tar.gz"}, errors.Join(err, w.Close(), zip.Close(), f.Close())
}

func (r *release) fill(w *tar.Writer, base string) error {
	for _, name := range programs() {
		if err := r.add(w, base+"/bin/"+name, filepath.Join(r.bin, name), 0o755); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		if err := r.add(w, base+"/share/"+name, filepath.Join(r.bin, name), 0o644); err != nil {
			return err
		}
	}
	for _, part := range []string{"README.md", "LICENSE", "docs", "deploy/config", "deploy/systemd", "deploy/compose/compose.yaml", "deploy/compose/prepare", "deploy/helm"} {
		var files []string
		err := filepath.WalkDir(filepath.Join(r.top, part), func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				files = append(files, path)
			}
			return err
		})
		if err != nil {
			return err
		}
		slices.Sort(files)
		for _, path := range files {
			rel, err := filepath.Rel(r.top, path)
			if err != nil {
				return err
			}
			info, err := os.Stat(path)
			if err != nil {
				return err
			}
			mode := int64(0o644)
			if info.Mode()&0o100 != 0 {
				mode = 0o755
			}
			if err := r.add(w, base+"/"+filepath.ToSlash(rel), path, mode); err != nil {
				return err
			}
		}
	}
	return nil
}

// add adds a file of root's to the archive.
func (r *release) add(w *tar.Writer, name, path string, mode int64) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	header := &tar.Header{Name: name, Mode: mode, Size: info.Size(), ModTime: r.timestamp, Format: tar.FormatPAX}
	if err := w.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.Copy(w, f)
	return err
}

// programs are those that are built.
func programs() []string {
	all := []string{"isthmus"}
	for _, d := range daemons {
		all = append(all, "isthmus-"+d)
	}
	return all
}
