package proxy

import (
	"os"
	"testing"
)

// idleDescriptors is how many the stock of idle pipes may hold.
const idleDescriptors = 64

func countDescriptors(t testing.TB) int {
	t.Helper()
	dir, err := os.ReadDir("/dev/fd") // Linux and macOS
	if err != nil {
		t.Fatal(err)
	}
	return len(dir)
}
