package ensemble

import "testing"

func TestConnectStrings(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"zk1": "zk1:2181", "zk1:2181": "zk1:2181", "zk1:2182, zk2 ,10.0.0.3:1": "zk1:2182,zk2:2181,10.0.0.3:1",
		"zk1,zk2/jobs": "zk1:2181,zk2:2181/jobs", "zk1/a/b": "zk1:2181/a/b", "zk1/": "zk1:2181", "[::1]:2181": "[::1]:2181",
	} {
		if got, err := ParseConnect(text); err != nil || got != want {
			t.Errorf("%q: %q, %v; want %q", text, got, err, want)
		}
	}
	for _, text := range []string{",", "zk1,", "zk1:", "zk1:0", "zk1:port", "zk1:99999", ":2181", "zk1:2181/a,zk2:2181/a", "zk1/a//b", "zk1/..", "zk 1", "::1"} {
		if got, err := ParseConnect(text); err == nil {
			t.Errorf("%q is taken as %q", text, got)
		}
	}
}
