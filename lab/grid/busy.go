package grid

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// ProcessorTime returns how much processor time a process has used, user and system (see
// proc_pid_stat(5)), in steps of 10 ms; 0 if the process does not exist.
func ProcessorTime(pid int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest) // from the third on
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond // USER_HZ is 100
}
