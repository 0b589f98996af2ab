package jobagent

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
)

// MaxFiles bounds the number of files that are fetched.
const MaxFiles = 4096

// stage writes a part of a file into the job's folder, and reports whether it was the last. The
// file appears whole or not at all.
func (a *agent) stage(m *nodepb.StagePart) (err error, end bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	name := string(m.Name)
	f := a.incoming[name]
	defer func() {
		if f != nil && (err != nil || end) {
			delete(a.incoming, name)
			f.Close()
			if err != nil || m.Drop {
				os.Remove(f.Name())
			}
		}
	}()
	switch {
	case m.Drop:
		return nil, true
	case a.folder == "" || a.closed || a.launched:
		return errors.New("no files are taken any more"), true
	case !filepath.IsLocal(filepath.FromSlash(name)):
		return fmt.Errorf("%.100q is no name below the job's folder", name), true
	}
	path := filepath.Join(a.folder, filepath.FromSlash(name))
	if f == nil {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err, true
		}
		if f, err = os.CreateTemp(filepath.Dir(path), "tmp-"); err != nil {
			return err, true
		}
		a.incoming[name] = f
	}
	if _, err := f.Write(m.Data); err != nil {
		return err, true
	}
	if !m.End {
		return nil, false
	}
	if err := f.Chmod(os.FileMode(m.Mode) & 0o700); err != nil {
		return err, true
	}
	return os.Rename(f.Name(), path), true
}

// fetch sends the output files that the submitter named.
func (a *agent) fetch(j job) {
	if a.folder == "" || len(j.GetOutputs()) == 0 || a.ctx.Err() != nil {
		return
	}
	root, err := os.OpenRoot(a.folder) // no symbolic link leads out of the folder through it
	if err != nil {
		a.fileChunk(&nodepb.FileChunk{End: true, Fault: []byte(err.Error())})
		return
	}
	defer root.Close()
	sent := map[string]bool{}
	for _, pattern := range nodepb.Words(j.Outputs) {
		names, err := fs.Glob(folderFS{root}, filepath.ToSlash(pattern))
		if err == nil && len(names) == 0 {
			err = errors.New("there is no such file after the job")
		}
		if err != nil {
			a.fileChunk(&nodepb.FileChunk{Name: []byte(pattern), End: true, Fault: []byte(err.Error())})
		}
		for _, name := range names {
			if a.ctx.Err() == nil && !sent[name] && len(sent) < MaxFiles {
				sent[name] = true
				a.fetchOne(root, name)
			}
		}
	}
}

// folderFS is a folder as a file system of names as the system has them: those of os.Root.FS are UTF-8
// only.
type folderFS struct{ root *os.Root }

// Open implements fs.FS.
func (f folderFS) Open(name string) (fs.File, error) { return f.root.Open(name) }

// Stat implements fs.StatFS: a folder that may not be read has a state, too.
func (f folderFS) Stat(name string) (fs.FileInfo, error) { return f.root.Stat(name) }

// fetchOne sends one file.
func (a *agent) fetchOne(root *os.Root, name string) {
	fail := func(err error) {
		a.fileChunk(&nodepb.FileChunk{Name: []byte(name), End: true, Fault: []byte(err.Error())})
	}
	info, err := root.Stat(name)
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is no regular file")
	}
	if err != nil {
		fail(err)
		return
	}
	f, err := root.Open(name)
	if err != nil {
		fail(err)
		return
	}
	defer f.Close()
	buf := make([]byte, Piece)
	for offset := uint64(0); a.ctx.Err() == nil; {
		n, err := io.ReadFull(f, buf)
		end := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !end {
			fail(err)
			return
		}
		a.fileChunk(&nodepb.FileChunk{Name: []byte(name), Mode: uint32(info.Mode().Perm()), Offset: offset, Data: slices.Clone(buf[:n]), End: end})
		if end {
			return
		}
		offset += uint64(n)
	}
}

func (a *agent) fileChunk(p *nodepb.FileChunk) {
	a.events.Add(&nodepb.ToSubmitter{Say: &nodepb.ToSubmitter_File{File: p}})
}

// RemoveAll removes a folder, even if a job removed its own permissions. It follows no link out of
// the parent folder, which a job could create meanwhile.
func RemoveAll(dir string) error {
	root, err := os.OpenRoot(filepath.Dir(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	name := filepath.Base(dir)
	if err = root.RemoveAll(name); err == nil {
		return nil
	}
	fs.WalkDir(folderFS{root}, name, func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() && err == nil {
			_ = root.Chmod(path, 0o700) // RemoveAll reports the error
		}
		return nil
	})
	return root.RemoveAll(name)
}
