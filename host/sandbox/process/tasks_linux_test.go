package process

import "testing"

func TestGroupLimit(t *testing.T) {
	files := map[string]string{
		"/sys/fs/cgroup/a/pids.max": "512\n", "/sys/fs/cgroup/a/b/pids.max": "max\n", "/sys/fs/cgroup/a/c/pids.max": "99\n",
		"/sys/fs/cgroup/pids/docker/pids.max": "64\n", "/sys/fs/cgroup/none/pids.max": "0\n",
	}
	for cgroup, want := range map[string]int{
		"0::/a/b\n": 512, "0::/a/c\n": 99, "0::/\n": 0, "": 0, "3:cpu:/a\n2:pids:/docker\n": 64, "0::/none\n": 1, "odd\n": 0,
	} {
		if got := groupLimit(cgroup, func(file string) string { return files[file] }); got != want {
			t.Errorf("%q: %d, expected %d", cgroup, got, want)
		}
	}
	for _, c := range [][3]int{{0, 0, 0}, {0, 5, 5}, {5, 0, 5}, {5, 3, 3}, {3, 5, 3}} {
		if got := lesser(c[0], c[1]); got != c[2] {
			t.Errorf("the lesser of %d and %d is %d", c[0], c[1], got)
		}
	}
}
