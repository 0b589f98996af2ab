package jobagent

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/isthmus-grid/isthmus/launch/nodeservice/gatepb"
)

// MaxFiles bounds the number of files that are fetched.
const MaxFiles = 4096

// stage writes a part of a file into the job's folder, and reports whether it was the last. The
// file appears whole or not at all.
func (a *agent) stage(m *gatepb.StagePart) (err error, end bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f := a.incoming[m.Name]
	defer func() {
		if f != nil && (err != nil || end) {
			delete(a.incoming, m.Name)
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
	case !filepath.IsLocal(filepath.FromSlash(m.Name)):
		return fmt.Errorf("%.100q is no name below the job's folder", m.Name), true
	}
	path := filepath.Join(a.folder, filepath.FromSlash(m.Name))
	if f == nil {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err, true
		}
		if f, err = os.CreateTemp(filepath.Dir(path), "tmp-"); err != nil {
			return err, true
		}
		a.incoming[m.Name] = f
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
		a.fileChunk(&gatepb.FileChunk{End: true, Fault: err.Error()})
		return
	}
	defer root.Close()
	sent := map[string]bool{}
	for _, pattern := range j.Outputs {
		names, err := fs.Glob(root.FS(), filepath.ToSlash(pattern))
		if err == nil && len(names) == 0 {
			err = errors.New("there is no such file after the job")
		}
		if err != nil {
			a.fileChunk(&gatepb.FileChunk{Name: pattern, End: true, Fault: err.Error()})
		}
		for _, name := range names {
			if a.ctx.Err() == nil && !sent[name] && len(sent) < MaxFiles {
				sent[name] = true
				a.fetchOne(root, name)
			}
		}
	}
}

// fetchOne sends one file.
func (a *agent) fetchOne(root *os.Root, name string) {
	fail := func(err error) { a.fileChunk(&gatepb.FileChunk{Name: name, End: true, Fault: err.Error()}) }
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
		a.fileChunk(&gatepb.FileChunk{Name: name, Mode: uint32(info.Mode().Perm()), Offset: offset, Data: slices.Clone(buf[:n]), End: end})
		if end {
			return
		}
		offset += uint64(n)
	}
}

func (a *agent) fileChunk(p *gatepb.FileChunk) {
	a.events.Add(&gatepb.ToSubmitter{Say: &gatepb.ToSubmitter_File{File: p}})
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
	fs.WalkDir(root.FS(), name, func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() && err == nil {
			_ = root.Chmod(path, 0o700) // RemoveAll reports the error
		}
		return nil
	})
	return root.RemoveAll(name)
}
