package milestone

import (
	"os"

	"github.com/isthmus-grid/isthmus/internal/job/marks"
)

// outputs are those of the process, whatever the program makes of os.Stdout.
var outputs = [...]*os.File{os.Stdout, os.Stderr}

// mark marks the outputs of this process for the launcher, which so knows which byte of the rank's output the first one
// is that a newcomer writes after it has loaded a state. Only pipes can lead to a launcher.
func (p *Program) mark(kind marks.Kind, id marks.ID) {
	if p.Marks == "" {
		return
	}
	for _, f := range outputs {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeNamedPipe != 0 {
			marks.Write(f, p.Marks, marks.Mark{Kind: kind, ID: id}) // fails only where all that the program writes does
		}
	}
}
