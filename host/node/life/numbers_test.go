package life

import (
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/zap"
)

// TestNumbers: a process knows the greatest number that those before it had of the same
// namespace in the same registry, and leaves it as it was if it had none that is greater.
func TestNumbers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	process := func(registry, namespace string, has int64) int64 {
		v := New(Options{Dir: dir, Registry: registry, Namespace: namespace, Greatest: func() int64 { return has }, Getenv: environment(nil), Log: zap.NewNop()})
		kept, _ := v.Kept()
		v.Start(func() bool { return true })
		if err := v.Close(); err != nil {
			t.Error(err)
		}
		return kept
	}
	for i, p := range []struct {
		registry, namespace string
		has, want           int64
	}{
		{"zk", "a", 70, 0}, {"zk", "a", 7, 70}, {"zk", "b", 5, 0}, {"other", "a", 6, 0}, {"zk", "a", 80, 70}, {"zk", "a", 0, 80}, {"zk", "b", 0, 5},
	} {
		if got := process(p.registry, p.namespace, p.has); got != p.want {
			t.Errorf("process %d, in %s on %s, knows %d, expected %d", i, p.namespace, p.registry, got, p.want)
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "numbers-*.json"))
	if err != nil || len(files) != 3 {
		t.Fatalf("files %q, %v", files, err)
	}

	// Two at once: the greater number stays.
	one, _ := openNumbers(dir, "zk", "a")
	two, _ := openNumbers(dir, "zk", "a")
	for _, err := range []error{one.keep(300), two.keep(200), two.keep(250)} {
		if err != nil {
			t.Error(err)
		}
	}
	if n, err := openNumbers(dir, "zk", "a"); err != nil || n.kept.Greatest != 300 {
		t.Errorf("%d is kept, %v", n.kept.Greatest, err)
	}

	// A file that cannot be read is said to be, and replaced.
	if err := os.WriteFile(one.path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	n, err := openNumbers(dir, "zk", "a")
	if err == nil || n.kept.Greatest != 0 {
		t.Errorf("a damaged file: %d, %v", n.kept.Greatest, err)
	}
	if err := n.keep(400); err != nil {
		t.Error(err)
	}
	if n, err := openNumbers(dir, "zk", "a"); err != nil || n.kept.Greatest != 400 {
		t.Errorf("%d is kept after that, %v", n.kept.Greatest, err)
	}
}
