package embedded

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

const (
	crashDir     = "WASMJOB_TEST_CRASH_DIR"
	crashWorkers = 4
)

// crashWorker commits as fast as it can until it is killed, and prints a line
// for every commit that was answered: worker, count, zxid.
func crashWorker(dir string) {
	die := func(err error) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	s, err := Open(Options{Dir: dir})
	if err != nil {
		die(err)
	}
	ctx := context.Background()
	var wg sync.WaitGroup
	for w := range crashWorkers {
		wg.Go(func() {
			rc, err := s.Connect(ctx)
			if err != nil {
				die(err)
			}
			a, b, marks := fmt.Sprintf("/a%d", w), fmt.Sprintf("/b%d", w), fmt.Sprintf("/marks%d", w)
			nodes, err := rc.Read(ctx, registry.Data(a))
			if err != nil {
				die(err)
			}
			count := 0
			if nodes[0].Exists {
				if count, err = strconv.Atoi(string(nodes[0].Data)); err != nil {
					die(err)
				}
			} else if _, err := rc.Commit(ctx, registry.Create(a, []byte("0")), registry.Create(b, []byte("0")), registry.Create(marks, nil)); err != nil {
				die(err)
			}
			for {
				count++
				text := []byte(strconv.Itoa(count))
				ops := []registry.Op{
					registry.Set(a, text, registry.AnyVersion), registry.Create(marks+"/"+string(text), text), registry.Set(b, text, registry.AnyVersion),
					registry.CreateEphemeral(fmt.Sprintf("/running%d-%d", w, count), nil),
				}
				if count > 10 { // the mark ten before goes: there are ten, or as many as commits
					ops = append(ops, registry.Delete(marks+"/"+strconv.Itoa(count-10), 0))
				}
				r, err := rc.Commit(ctx, ops...)
				if err != nil {
					die(err)
				}
				if _, err := fmt.Printf("%d %d %d\n", w, count, r[0].Zxid); err != nil {
					die(err)
				}
			}
		})
	}
	wg.Wait()
}

// A host is killed in the midst of commits: all that were answered are there,
// none is there by half, and no transaction number comes again.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(3, 9))
	var last [crashWorkers]int
	var zxid int64
	for round := range 6 {
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), crashDir+"="+dir)
		c.Stderr = os.Stderr
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		answers := 1 + r.IntN(150)
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ { // also what was printed before the kill came
			var w, count int
			var z int64
			if _, err := fmt.Sscanf(lines.Text(), "%d %d %d", &w, &count, &z); err != nil {
				continue // the last line may be cut off
			}
			if count != last[w]+1 {
				t.Errorf("round %d: worker %d counted %d after %d", round, w, count, last[w])
			}
			last[w], zxid = count, max(zxid, z)
			if n == answers {
				if err := c.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		var exit *exec.ExitError
		if err := c.Wait(); !errors.As(err, &exit) || exit.Exited() {
			t.Fatalf("the helper was not killed: %v", err)
		}
		zxid = checkCrashed(t, dir, &last, zxid)
	}
	if zxid == 0 {
		t.Fatal("nothing was ever committed")
	}
}

// checkCrashed looks at what the killed helper left, raises last to what is
// there, and returns the last zxid.
func checkCrashed(t *testing.T, dir string, last *[crashWorkers]int, zxid int64) int64 {
	t.Helper()
	checkFile(t, filepath.Join(dir, fileName))
	s, err := Open(Options{Dir: dir})
	if err != nil {
		t.Fatalf("open after the kill: %v", err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	rc, err := s.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	root, err := rc.Read(t.Context(), registry.Children("/"))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(root[0].Names); n%3 != 0 || n > 3*crashWorkers {
		t.Errorf("below the root: %q; an ephemeral node survived, or half a commit was made", root[0].Names)
	}
	for w := range last {
		nodes, err := rc.Read(t.Context(), registry.Data(fmt.Sprintf("/a%d", w)), registry.Data(fmt.Sprintf("/b%d", w)), registry.Children(fmt.Sprintf("/marks%d", w)))
		if err != nil {
			t.Fatal(err)
		}
		if !nodes[0].Exists {
			if last[w] > 0 {
				t.Errorf("worker %d: its nodes are gone", w)
			}
			continue
		}
		count, err := strconv.Atoi(string(nodes[0].Data))
		if err != nil || string(nodes[1].Data) != string(nodes[0].Data) || len(nodes[2].Names) != min(count, 10) || nodes[0].Mzxid != nodes[1].Mzxid {
			t.Errorf("worker %d: half a commit: %+v (%v)", w, nodes, err)
		}
		if count != last[w] && count != last[w]+1 {
			t.Errorf("worker %d: %d is there, %d was answered", w, count, last[w])
		}
		last[w] = count
		zxid = max(zxid, nodes[0].Mzxid)
	}
	if _, err := rc.Commit(t.Context(), registry.Ensure("/z")); err != nil {
		t.Fatal(err)
	}
	set, err := rc.Commit(t.Context(), registry.Set("/z", nil, registry.AnyVersion), registry.Delete("/z", registry.AnyVersion))
	if err != nil {
		t.Fatal(err)
	}
	if set[0].Zxid <= zxid {
		t.Errorf("transaction %d came after %d", set[0].Zxid, zxid)
	}
	return set[0].Zxid
}

// checkFile has bbolt examine the whole file.
func checkFile(t *testing.T, path string) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockWait})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	err = db.View(func(tx *bbolt.Tx) error {
		var errs []error
		for err := range tx.Check() {
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatalf("check: %v", err)
	}
}
