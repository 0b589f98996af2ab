package ranks

import (
	"bytes"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
)

// What the kernel reveals of a rank to other users does not contain the job's key, and programs
// that the rank starts can still read it.
func TestKeyIsNotShown(t *testing.T) {
	key, err := jobkey.New("job")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(jobkey.EnvKey, "another:key")
	var out bytes.Buffer
	err = Run(t.Context(), Job{
		Argv:  []string{"sh", "-c", "cat /proc/$$/environ /proc/$$/cmdline | tr '\\0' '\\n'; echo; echo then; sh -c \"cat /proc/self/fd/$" + jobkey.EnvKeyFD + "\""},
		Count: 1, Size: 1, Key: key, Stdout: &out,
	})
	shown, read, _ := strings.Cut(out.String(), "then\n")
	if _, secret, _ := strings.Cut(key.String(), ":"); err != nil || strings.Contains(shown, secret) || strings.Contains(shown, jobkey.EnvKey+"=") || !strings.Contains(shown, "ISTHMUS_RANK=0") {
		t.Errorf("%v: /proc shows\n%s", err, shown)
	}
	if strings.TrimSpace(read) != key.String() {
		t.Errorf("by its descriptor a process reads %q", read)
	}
}
