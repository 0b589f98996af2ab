package ask

import (
	"net"
	"os"
	"path/filepath"
	"testing"
)

func TestHelperAt(t *testing.T) {
	dir := t.TempDir()
	socket, file := filepath.Join(dir, "helper.sock"), filepath.Join(dir, "file")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		named           bool
		name, byDefault string
		want            string
	}{
		{false, "", socket, socket},
		{false, "", file, ""},
		{false, "", filepath.Join(dir, "absent"), ""},
		{true, "", socket, ""}, // ISTHMUS_HELPER= in the environment
		{true, "none", socket, ""},
		{true, "/other", socket, "/other"},
	} {
		if got := helperAt(tc.named, tc.name, tc.byDefault); got != tc.want {
			t.Errorf("named %v %q, by default %q: %q, want %q", tc.named, tc.name, filepath.Base(tc.byDefault), got, tc.want)
		}
	}
}
