package policy

import "github.com/isthmus-grid/isthmus/overlay"

// Who is on whose behalf one end of a link works.
type Who = overlay.Principal
