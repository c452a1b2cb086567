package process

import (
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// tasksLimit is how many tasks this process and those that it starts may have: by the limit of
// its user, or of its control group. 0: none is known.
func tasksLimit() int {
	most := 0
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NPROC, &own); err == nil && os.Geteuid() != 0 && own.Cur < 1<<30 {
		most = int(own.Cur)
	}
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return most
	}
	return lesser(most, groupLimit(string(text), func(file string) string {
		text, err := os.ReadFile(file)
		if err != nil {
			return ""
		}
		return string(text)
	}))
}

// groupLimit returns the lowest limit among a process's control groups; cgroup is its cgroup file, read returns
// a file's content, empty if it is missing. 0: none.
func groupLimit(cgroup string, read func(file string) string) (most int) {
	for line := range strings.Lines(cgroup) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 || (parts[1] != "" && parts[1] != "pids") {
			continue
		}
		root := path.Join("/sys/fs/cgroup", parts[1])
		for group := path.Join("/", parts[2]); ; group = path.Dir(group) {
			if n, err := strconv.Atoi(strings.TrimSpace(read(path.Join(root, group, "pids.max")))); err == nil {
				most = lesser(most, max(n, 1))
			}
			if group == "/" {
				break
			}
		}
	}
	return most
}

// lesser returns the lower of two limits; 0 is none.
func lesser(a, b int) int {
	if a == 0 || (b != 0 && b < a) {
		return b
	}
	return a
}
