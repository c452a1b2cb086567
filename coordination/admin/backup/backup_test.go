package backup

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wasmjob/wasmjob/coordination/fence"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/embedded"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// connect is a session with a registry of its own.
func connect(t *testing.T) registry.Center {
	t.Helper()
	s, err := embedded.Open(embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	c, err := s.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func commitAll(t *testing.T, c registry.Center, ops ...registry.Op) []registry.Result {
	t.Helper()
	results, err := c.Commit(t.Context(), ops...)
	if err != nil {
		t.Fatal(err)
	}
	return results
}

// fill makes a namespace with a job, a host and its key.
func fill(t *testing.T, c registry.Center, namespace string) {
	t.Helper()
	ours := "/" + namespace + ".wasmjob"
	commitAll(t, c, registry.Ensure("/"+namespace+"/cities/instances"), registry.Create("/"+namespace+"/cities/config", []byte("cron: x")),
		registry.Ensure(ours+"/cities"), registry.Create(ours+"/cities/definition", []byte{0, 1, 0xff}),
		registry.Ensure(ours+"/@-@hosts"), registry.Set(ours+"/@-@hosts", []byte("key"), 0), registry.Create(ours+"/@-@signedout", []byte("[]")))
	commitAll(t, c, registry.CreateEphemeral("/"+namespace+"/cities/instances/10.0.0.1@-@1-a", nil), registry.CreateEphemeral(ours+"/@-@hosts/h", nil))
}

func dataOf(nodes []Node) map[string]string {
	m := make(map[string]string)
	for _, n := range nodes {
		m[n.Path] = string(n.Data)
	}
	return m
}

func read(t *testing.T, c registry.Center, namespace string) (map[string]string, int64, int) {
	t.Helper()
	nodes, greatest, ephemeral, err := Read(t.Context(), c, namespace)
	if err != nil {
		t.Fatal(err)
	}
	return dataOf(nodes), greatest, ephemeral
}

// TestRestore: what outlives hosts comes back in another namespace of another registry, and its numbers are above all that were
// given out before and after the backup, again and again.
func TestRestore(t *testing.T) {
	t.Parallel()
	from := connect(t)
	fill(t, from, "team/prod")
	nodes, greatest, ephemeral, err := Read(t.Context(), from, "team/prod")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"": "", ".wasmjob": "", "/cities": "", "/cities/config": "cron: x", "/cities/instances": "", ".wasmjob/cities": "", ".wasmjob/cities/definition": "\x00\x01\xff", ".wasmjob/@-@signedout": "[]"}
	if got := dataOf(nodes); !maps.Equal(got, want) || ephemeral != 1 || greatest == 0 {
		t.Fatalf("%d of sessions, up to %d: %q", ephemeral, greatest, got)
	}
	later := commitAll(t, from, registry.Set("/team/prod/cities/config", nil, 0))[0].Zxid

	b := Backup{Header: Header{Time: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), Namespace: "team/prod", Number: greatest}, Nodes: nodes, Files: []File{{Kind: "users", Name: "users.yaml", Data: []byte("users: []")}}}
	var file bytes.Buffer
	if err := b.Write(&file); err != nil {
		t.Fatal(err)
	}
	back, err := ReadFile(bytes.NewReader(file.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(dataOf(back.Nodes), want) || back.Namespace != "team/prod" || back.Number != greatest || !slices.Equal(back.Jobs(), []string{"cities"}) || len(back.Files) != 1 || string(back.Files[0].Data) != "users: []" {
		t.Fatalf("%+v", back)
	}

	to := connect(t)
	highest := later
	for range 2 {
		w, err := Write(t.Context(), to, back.Nodes, Target{Namespace: "copy", Above: highest, Replace: true, By: "ann"})
		if err != nil {
			t.Fatal(err)
		}
		got, _, _ := read(t, to, "copy")
		if data := got[".wasmjob"]; !strings.Contains(data, `"raisedBy":"ann"`) {
			t.Errorf("base %q", data)
		}
		got[".wasmjob"] = ""
		if !maps.Equal(got, want) || w.Nodes != len(want)-2 {
			t.Errorf("%+v: %q", w, got)
		}
		raised, err := fence.Raised(t.Context(), to, "copy")
		if err != nil {
			t.Fatal(err)
		}
		next := commitAll(t, raised, registry.Set("/copy/cities/config", []byte("cron: x"), 0))[0].Zxid
		if next <= highest || w.Base <= highest {
			t.Errorf("number %d, base %d, and %d was given out", next, w.Base, highest)
		}
		highest = next
	}
}

// TestRestoreRefuses: nothing is changed where hosts are, or where there are jobs.
func TestRestoreRefuses(t *testing.T) {
	t.Parallel()
	c := connect(t)
	fill(t, c, "ns")
	nodes := []Node{{Path: ""}, {Path: "/a"}}
	before, _, _ := read(t, c, "ns")
	if _, err := Write(t.Context(), c, nodes, Target{Namespace: "ns", Above: 7, Replace: true}); err == nil || !strings.Contains(err.Error(), "hosts are running in namespace ns (2 nodes of their sessions): stop all of them") {
		t.Error(err)
	}
	commitAll(t, c, registry.Delete("/ns/cities/instances/10.0.0.1@-@1-a", -1), registry.Delete("/ns.wasmjob/@-@hosts/h", -1))
	if _, err := Write(t.Context(), c, nodes, Target{Namespace: "ns", Above: 7}); !errors.Is(err, ErrHasJobs) || !strings.HasSuffix(err.Error(), ": cities") {
		t.Error(err)
	}
	if after, _, _ := read(t, c, "ns"); !maps.Equal(before, after) {
		t.Errorf("%q", after)
	}
	if _, err := Write(t.Context(), c, nodes, Target{Namespace: "ns", Above: 7, Replace: true}); err != nil {
		t.Error(err)
	}
	if after, _, _ := read(t, c, "ns"); len(after) != 3 || after["/a"] != "" {
		t.Errorf("%q", after)
	}
}

// doubtful loses the answer to every third commit, after or before that has taken effect.
type doubtful struct {
	registry.Center
	n *int
}

func (d doubtful) Commit(ctx context.Context, ops ...registry.Op) ([]registry.Result, error) {
	if *d.n++; *d.n%6 == 1 {
		return nil, registry.ErrUnknown
	}
	results, err := d.Center.Commit(ctx, ops...)
	if *d.n%3 == 1 && err == nil {
		return nil, registry.ErrUnknown
	}
	return results, err
}

// TestRestoreThroughDoubt: lost answers change nothing of the result.
func TestRestoreThroughDoubt(t *testing.T) {
	t.Parallel()
	c := connect(t)
	nodes := []Node{{Path: ""}, {Path: ".wasmjob"}}
	for n := range 3000 {
		nodes = append(nodes, Node{Path: fmt.Sprintf("/job%d", n), Data: bytes.Repeat([]byte{'x'}, 1000)})
	}
	for range 2 {
		if _, err := Write(t.Context(), doubtful{c, new(int)}, nodes, Target{Namespace: "ns", Above: 7, Replace: true}); err != nil {
			t.Fatal(err)
		}
		if after, _, _ := read(t, c, "ns"); len(after) != len(nodes) || len(after["/job2999"]) != 1000 {
			t.Errorf("%d nodes", len(after))
		}
	}
}

// TestReadFile: a file that is no backup, is damaged or was made by a newer version is refused, and what would lead out of
// the namespace or out of a directory as well.
func TestReadFile(t *testing.T) {
	t.Parallel()
	const header = `{"wasmjobBackup":1,"namespace":"ns"}` + "\n"
	zipped := func(text string) []byte {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = z.Write([]byte(text)) // into memory
		_ = z.Close()
		return b.Bytes()
	}
	whole := zipped(header + `{"path":"/a"}` + "\n" + `{"lines":1}` + "\n")
	if _, err := ReadFile(bytes.NewReader(whole)); err != nil {
		t.Fatal(err)
	}
	damaged := bytes.Clone(whole)
	damaged[len(damaged)-6] ^= 1
	for want, text := range map[string][]byte{
		"it is no backup: found no data compressed by gzip":                                 []byte("hello"),
		"line 1: it is no backup: the first line does not say so":                           zipped("{}\n"),
		"found format 2, expected 1 to 1: a newer version of wasmjob has made it":           zipped(`{"wasmjobBackup":2}` + "\n"),
		"the file is damaged: gzip: invalid checksum":                                       damaged,
		"the file is cut short: its last line is missing, and 1 node and 0 files are there": zipped(header + `{"path":"/a"}` + "\n"),
		"the file is damaged: unexpected EOF":                                               whole[:len(whole)-9],
		"line 3: lines: found 2, expected 1: lines are missing":                             zipped(header + `{"path":"/a"}` + "\n" + `{"lines":2}` + "\n"),
		"line 3: found a line behind the last one":                                          zipped(header + `{"lines":0}` + "\n{}\n"),
		`line 2: path: found "/../x", expected that of a node`:                              zipped(header + `{"path":"/../x"}` + "\n"),
		`line 2: path: found "other/x", expected that of a node`:                            zipped(header + `{"path":"other/x"}` + "\n"),
		`line 2: path: found "/a//b", expected that of a node`:                              zipped(header + `{"path":"/a//b"}` + "\n"),
		`line 2: name: found "../x", expected the name of a file`:                           zipped(header + `{"file":"users","name":"../x"}` + "\n"),
		`line 2: file: found "keys", expected users, grants, alerts`:                        zipped(header + `{"file":"keys","name":"x"}` + "\n"),
		"line 2: found no node and no file":                                                 zipped(header + "x\n"),
	} {
		if _, err := ReadFile(bytes.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
