package milestone

import (
	"os"

	"github.com/isthmus-grid/isthmus/internal/job/marks"
)

// output is that of the process, whatever the program makes of os.Stdout.
var output = os.Stdout

// mark marks the standard output of this process for the launcher, which so knows which byte of the rank's output the first one
// is that a newcomer writes after it has loaded a state. Only pipes can lead to a launcher.
func (p *Program) mark(kind marks.Kind, id marks.ID) {
	if p.Marks == "" {
		return
	}
	if info, err := output.Stat(); err == nil && info.Mode()&os.ModeNamedPipe != 0 {
		marks.Write(output, p.Marks, marks.Mark{Kind: kind, ID: id}) // fails only where all that the program writes does
	}
}
