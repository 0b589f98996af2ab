package nodeservice

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/isthmus-grid/isthmus/launch/jobagent"
	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
	"github.com/isthmus-grid/isthmus/launch/stage"
	"github.com/isthmus-grid/isthmus/overlay"
)

// maxTries is how often a chunk may arrive corrupt.
const maxTries = 3

// incoming is the file that a conversation is staging. Its reader owns it.
type incoming struct {
	name    string // "" when there is none
	mode    os.FileMode
	file    stage.Manifest
	whole   bool              // all sums have arrived
	wanted  map[stage.Sum]int // missing chunks, and how often each arrived corrupt
	store   *stage.Share      // of the submitter
	release []func()          // releases the pins
}

// drop discards the file.
func (f *incoming) drop() {
	for _, r := range f.release {
		r()
	}
	*f = incoming{}
}

// manifest handles a part of a file's manifest.
func (c *conversation) manifest(m *nodepb.Manifest) {
	f := &c.incoming
	if err := c.describe(m); err != nil {
		name := string(m.Name)
		f.drop()
		c.answer(fault(codeOf(err), name, "%v", err))
		return
	}
	if !f.whole {
		return
	}
	f.wanted = map[stage.Sum]int{}
	c.pin()
	c.askFor(f.store.Missing(f.file))
}

// pin pins the chunks of the file that the store has now.
func (c *conversation) pin() {
	f := &c.incoming
	f.release = append(f.release, f.store.Pin(f.file))
}

// describe adds a part to the file's description and validates it.
func (c *conversation) describe(m *nodepb.Manifest) error {
	f := &c.incoming
	sums, err := sumsOf(m.Sums)
	switch {
	case err != nil:
		return err
	case f.name == "":
		if err := c.admitFile(m); err != nil {
			return err
		}
		f.name, f.mode, f.file.Size = string(m.Name), os.FileMode(m.Mode)&0o700|0o400, int64(m.Size)
	case f.whole:
		return fmt.Errorf("%s comes while %s is not stored", m.Name, f.name)
	case f.name != string(m.Name) || f.file.Size != int64(m.Size):
		return fmt.Errorf("the manifest of %s goes on as that of %s", f.name, m.Name)
	}
	f.file.Chunks = append(f.file.Chunks, sums...)
	if f.whole = !m.Continues; f.whole || int64(len(f.file.Chunks))*stage.ChunkSize > f.file.Size+stage.ChunkSize {
		return f.file.Check()
	}
	return nil
}

// admitFile checks that the booking may stage one more file, and creates its folder.
func (c *conversation) admitFile(m *nodepb.Manifest) error {
	b := c.b
	if err := checkName(string(m.Name)); err != nil {
		return err
	}
	if m.Size > stage.MaxFile {
		return fmt.Errorf("%s has %d bytes; at most %d", m.Name, m.Size, int64(stage.MaxFile))
	}
	store, err := c.k.openStore()
	if err != nil {
		return &diskError{err}
	}
	if _, err := b.home(); err != nil {
		return &diskError{err}
	}
	c.incoming.store = store.Of(b.Who.Identity())
	return c.k.try(func(time.Time) error { return b.admitFile(string(m.Name), int64(m.Size)) })
}

// askFor requests chunks, or stores the file when none is missing.
func (c *conversation) askFor(sums []stage.Sum) {
	f := &c.incoming
	if len(sums) == 0 {
		c.assemble()
		return
	}
	for _, sum := range sums {
		if _, requested := f.wanted[sum]; !requested {
			f.wanted[sum] = 0
		}
	}
	for len(sums) > 0 {
		n := min(len(sums), maxSums)
		m := &nodepb.Missing{Name: []byte(f.name), Continues: n < len(sums)}
		for _, sum := range sums[:n] {
			m.Sums = append(m.Sums, append([]byte(nil), sum[:]...))
		}
		c.answer(&nodepb.ToSubmitter{Say: &nodepb.ToSubmitter_Missing{Missing: m}})
		sums = sums[n:]
	}
}

// chunk handles a chunk that was requested.
func (c *conversation) chunk(m *nodepb.Chunk) {
	f := &c.incoming
	if f.name == "" || !f.whole {
		return // of a file that failed; the fault was reported
	}
	sums, err := sumsOf([][]byte{m.Sum})
	if err == nil {
		if _, wanted := f.wanted[sums[0]]; !wanted {
			return // a duplicate
		}
		err = f.store.Put(sums[0], m.Data)
	}
	switch {
	case errors.Is(err, stage.ErrCorrupt) && f.wanted[sums[0]]+1 < maxTries:
		f.wanted[sums[0]]++
		c.askFor(sums)
		return
	case err != nil:
		name := f.name
		f.drop()
		c.answer(fault(codeOf(err), name, "%v", err))
		return
	}
	delete(f.wanted, sums[0])
	f.release = append(f.release, f.store.Pin(stage.Manifest{Chunks: sums}))
	if len(f.wanted) == 0 {
		c.assemble()
	}
}

// stageTime bounds how long an agent may take to write the last data it was given.
const stageTime = time.Minute

// assemble makes the agent write the file into the job's folder, and verifies it once more.
func (c *conversation) assemble() {
	f := &c.incoming
	err := c.sendFile()
	name := f.name
	switch {
	case errors.Is(err, stage.ErrMissing):
		c.askFor(f.store.Missing(f.file)) // corrupted on disk
		return
	case errors.Is(err, stage.ErrCorrupt), err == nil:
	default:
		err = &diskError{err}
	}
	f.drop()
	if err != nil {
		c.answer(fault(codeOf(err), name, "%v", err))
		return
	}
	c.answer(&nodepb.ToSubmitter{Say: &nodepb.ToSubmitter_Stored{Stored: &nodepb.Stored{Name: []byte(name)}}})
}

// sendFile sends the file to the agent, chunk by chunk.
func (c *conversation) sendFile() error {
	f, b := &c.incoming, c.b
	agent, err := b.home()
	if err != nil {
		return err
	}
	select { // discards the answer about a file of an earlier stream
	case <-agent.staged:
	default:
	}
	part := func(p *nodepb.StagePart) {
		p.Name, p.Mode = []byte(f.name), uint32(f.mode)
		b.sendAgent(&nodepb.ToAgent{Say: &nodepb.ToAgent_File{File: p}})
	}
	err = f.store.Each(f.file, func(chunk []byte) error {
		part(&nodepb.StagePart{Data: chunk})
		return nil
	})
	part(&nodepb.StagePart{End: err == nil, Drop: err != nil})
	select {
	case staged := <-agent.staged:
		if err == nil && len(staged.Fault) > 0 {
			err = errors.New(string(staged.Fault))
		}
	case <-agent.gone:
		err = jobagent.ErrGone
	case <-time.After(stageTime):
		err = fmt.Errorf("%w: the job agent did not write it within %v", overlay.ErrTimeout, stageTime)
	}
	return err
}

// diskError means that a file could not be written.
type diskError struct{ error }

func (e *diskError) Unwrap() error { return e.error }

func codeOf(err error) nodepb.Fault_Code {
	var disk *diskError
	switch {
	case errors.Is(err, stage.ErrFull):
		return nodepb.Fault_FULL
	case errors.Is(err, stage.ErrCorrupt):
		return nodepb.Fault_CORRUPT
	case errors.As(err, &disk):
		return nodepb.Fault_DISK
	}
	return nodepb.Fault_INVALID
}
