package bundle

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
)

// Bounds of a bundle, before compression.
const (
	MaxFile  = 4 << 20  // of one text; only the end of a longer log is kept
	MaxWhole = 32 << 20 // of all texts
)

// A File is one collected text.
type File struct {
	Name string // in the bundle, without site-specific names: "status/frontal-1.json"
	From string // its origin, for the manifest; masked
	Form Form
	Text []byte
}

// A Gap is a text that could not be collected.
type Gap struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

// An Entry describes the treatment of one file.
type Entry struct {
	File     string         `json:"file"`
	From     string         `json:"from"`
	Bytes    int            `json:"bytes"`
	Replaced map[string]int `json:"replaced"` // number of replacements, by class
}

// A Manifest is the bundle's first file.
type Manifest struct {
	Created time.Time `json:"created"`
	Names   string    `json:"names"` // how names were treated
	Files   []Entry   `json:"files"`
	Gaps    []Gap     `json:"gaps"`
}

// A Bundle is the collected files, masked.
type Bundle struct {
	Manifest Manifest
	files    []File
}

// Make masks the files. It learns from all of them before it masks the first.
func Make(m *Mask, made time.Time, files []File, gaps []Gap) (*Bundle, error) {
	b := &Bundle{Manifest: Manifest{Created: made.UTC().Truncate(time.Second), Files: []Entry{}, Gaps: []Gap{}}}
	b.Manifest.Names = "replaced by pseudonyms, the same for the same name in this bundle only; addresses, too; secrets removed"
	if m.keep {
		b.Manifest.Names = "kept (--keep-names): for use inside; secrets removed"
	}
	for _, f := range files {
		m.LearnFrom(f.Form, f.Text)
	}
	if err := m.Err(); err != nil {
		return nil, err
	}
	m.Counts()
	whole := 0
	for _, f := range files {
		if len(f.Text) > MaxFile || whole+len(f.Text) > MaxWhole {
			gaps = append(gaps, Gap{f.Name, fmt.Sprintf("%d bytes, more than a bundle takes", len(f.Text))})
			continue
		}
		text, err := m.Mask(f.Form, f.Text)
		if err != nil {
			gaps = append(gaps, Gap{f.Name, err.Error()})
			m.Counts()
			continue
		}
		whole += len(f.Text)
		replaced := m.Counts()
		f.Text = text
		b.files = append(b.files, f)
		b.Manifest.Files = append(b.Manifest.Files, Entry{f.Name, m.Text(f.From), len(text), replaced})
		m.Counts()
	}
	for _, g := range gaps {
		b.Manifest.Gaps = append(b.Manifest.Gaps, Gap{m.Text(g.What), strings.TrimSpace(m.Text(g.Why))})
	}
	return b, nil
}

// Write writes the bundle as a gzipped tar archive. The archive's headers name no user and no
// machine.
func (b *Bundle) Write(w io.Writer) error {
	manifest, err := json.MarshalIndent(b.Manifest, "", "  ")
	if err != nil {
		return err
	}
	z := gzip.NewWriter(w)
	t := tar.NewWriter(z)
	for _, f := range append([]File{{Name: "manifest.json", Text: append(manifest, '\n')}}, b.files...) {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: "isthmus-bundle/" + f.Name, Size: int64(len(f.Text)), Mode: 0o600, ModTime: b.Manifest.Created}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		if _, err := t.Write(f.Text); err != nil {
			return err
		}
	}
	if err := t.Close(); err != nil {
		return err
	}
	return z.Close()
}
