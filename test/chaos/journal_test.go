package chaos

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A log is built byte by byte, as ZooKeeper writes it.

type bytesOf struct{ data []byte }

func (b *bytesOf) int(v int32) *bytesOf {
	b.data = binary.BigEndian.AppendUint32(b.data, uint32(v))
	return b
}

func (b *bytesOf) long(v int64) *bytesOf {
	b.data = binary.BigEndian.AppendUint64(b.data, uint64(v))
	return b
}

func (b *bytesOf) text(s string) *bytesOf {
	b.int(int32(len(s)))
	b.data = append(b.data, s...)
	return b
}

// op is an operation of a multi.
type op struct {
	kind       int32
	path, data string
	ephemeral  bool
}

func (o op) body() []byte {
	b := &bytesOf{}
	switch o.kind {
	case txnCreate, txnCreate2:
		b.text(o.path).text(o.data).int(1).int(31).text("world").text("anyone")
		b.data = append(b.data, map[bool]byte{true: 1}[o.ephemeral])
		b.int(7)
	case txnDelete:
		b.text(o.path)
	case txnSet:
		b.text(o.path).text(o.data).int(3)
	case txnCheck:
		b.text(o.path).int(3)
	case txnError:
		b.int(-101)
	}
	return b.data
}

// logFile makes the bytes of a log.
type logFile struct {
	bytesOf
	zxid int64
}

func newLog() *logFile {
	l := &logFile{zxid: 1 << 32}
	l.int(logMagic).int(2).long(0)
	return l
}

// entry appends a transaction of a session, and returns its number.
func (l *logFile) entry(session int64, kind int32, body []byte) int64 {
	l.zxid++
	t := (&bytesOf{}).long(session).int(1).long(l.zxid).long(1_700_000_000_000).int(kind)
	t.data = append(t.data, body...)
	t.int(2).long(99) // a digest of the tree comes last
	l.long(0).int(int32(len(t.data)))
	l.data = append(append(l.data, t.data...), entryEnd)
	return l.zxid
}

func (l *logFile) multi(session int64, ops ...op) int64 {
	b := (&bytesOf{}).int(int32(len(ops)))
	for _, o := range ops {
		body := o.body()
		b.int(o.kind).text(string(body))
	}
	return l.entry(session, txnMulti, b.data)
}

func join(id string) []op {
	return []op{
		{txnCreate, "/ns/j/instances/" + id, "", true},
		{txnCreate, "/ns.wasmjob/j/instances/" + id, "", true},
	}
}

const instant = 1_700_000_000_000

func begin(id string, at int64) []op {
	return []op{
		{kind: txnCheck, path: "/ns/j/config"},
		{kind: txnSet, path: "/ns.wasmjob/j/sharding/0", data: fmt.Sprintf(`{"owner":%q,"instant":%d,"begun":%d}`, id, at, at)},
		{kind: txnSet, path: "/ns.wasmjob/j/runs/" + id, data: fmt.Sprintf(`{"runs":[{"instant":%d,"source":"schedule","items":"0"}]}`, at)},
	}
}

func complete(id string, at int64, outcome string) []op {
	return []op{
		{kind: txnSet, path: "/ns.wasmjob/j/sharding/0", data: fmt.Sprintf(`{"owner":%q,"instant":%d,"begun":%d,"ended":%d,"outcome":%q}`, id, at, at, at+1, outcome)},
		{kind: txnSet, path: "/ns.wasmjob/j/runs/" + id},
	}
}

func offset(count, fence int64) op {
	return op{kind: txnSet, path: "/ns.wasmjob/j/offset/0", data: fmt.Sprintf("%d %d %d", count, sumOf(0, count), fence)}
}

// TestAudit: what is in order is not complained of, and what is not is found.
func TestAudit(t *testing.T) {
	t.Parallel()
	const a, b = "1.1.1.1@-@1-a", "2.2.2.2@-@2-b"
	for _, c := range []struct {
		name  string
		write func(l *logFile)
		want  []string // parts of the findings
	}{
		{"in order", func(l *logFile) {
			f := l.multi(1, begin(a, instant)...)
			l.multi(1, offset(3, f))
			l.multi(1, append(complete(a, instant, "OK"), offset(5, f))...)
			f = l.multi(2, begin(b, instant+1000)...)
			l.multi(2, offset(9, f))
		}, nil},
		{"taken over after the session's end", func(l *logFile) {
			l.multi(1, begin(a, instant)...)
			l.entry(1, txnCloseSession, nil)
			l.multi(2, begin(b, instant)...)
		}, nil},
		{"taken over after the instance was deleted", func(l *logFile) {
			l.multi(1, begin(a, instant)...)
			l.multi(1, op{kind: txnDelete, path: "/ns/j/instances/" + a}, op{kind: txnDelete, path: "/ns.wasmjob/j/instances/" + a})
			l.multi(2, begin(b, instant)...)
		}, nil},
		{"handed back and begun again", func(l *logFile) {
			l.multi(1, begin(a, instant)...)
			l.multi(1, complete(a, instant, "CANCELLED")...)
			l.multi(2, begin(b, instant)...)
		}, nil},
		{"what failed did not happen", func(l *logFile) {
			l.multi(1, begin(a, instant)...)
			l.multi(2, append(begin(b, instant), op{kind: txnError})...)
		}, nil},
		{"two owners", func(l *logFile) {
			l.multi(1, begin(a, instant)...)
			l.multi(2, begin(b, instant)...)
		}, []string{"while " + a + " runs it"}},
		{"begun again after its completion", func(l *logFile) {
			l.multi(1, begin(a, instant)...)
			l.multi(1, complete(a, instant, "OK")...)
			l.multi(2, begin(b, instant)...)
		}, []string{"begun once more"}},
		{"an offset of a former owner", func(l *logFile) {
			f := l.multi(1, begin(a, instant)...)
			l.entry(1, txnCloseSession, nil)
			l.multi(2, begin(b, instant)...)
			l.multi(1, offset(3, f))
		}, []string{"written by the guest of fence"}},
		{"an offset that goes back, and one that is wrong", func(l *logFile) {
			f := l.multi(1, begin(a, instant)...)
			l.multi(1, offset(3, f))
			l.multi(1, offset(2, f))
			l.multi(1, op{kind: txnSet, path: "/ns.wasmjob/j/offset/0", data: fmt.Sprintf("4 1 %d", f)})
		}, []string{"goes back", "the sum is 1"}},
		{"a run that is in no list", func(l *logFile) {
			l.multi(1, begin(a, instant)[:2]...)
		}, []string{"does not have it"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := newLog()
			l.multi(1, join(a)...)
			l.multi(2, join(b)...)
			c.write(l)
			list, err := readJournal(append(l.data, make([]byte, 64)...))
			if err != nil {
				t.Fatal(err)
			}
			audit := newAudit("ns")
			for i := range list {
				audit.take(&list[i])
			}
			if len(audit.findings) != len(c.want) {
				t.Fatalf("findings %q, want %q", audit.findings, c.want)
			}
			for i, want := range c.want {
				if !strings.Contains(audit.findings[i], want) {
					t.Errorf("finding %q, want %q in it", audit.findings[i], want)
				}
			}
			if audit.begins == 0 {
				t.Error("no begin was seen")
			}
		})
	}
}

// TestTornJournal: what a killed server leaves ends the file; what is no log is
// an error.
func TestTornJournal(t *testing.T) {
	t.Parallel()
	l := newLog()
	l.multi(1, begin("x", instant)...)
	whole := len(l.data)
	l.multi(1, complete("x", instant, "OK")...)
	for cut := whole + 13; cut < len(l.data); cut += 7 {
		list, err := readJournal(l.data[:cut])
		if !errors.Is(err, errTorn) || len(list) != 1 {
			t.Errorf("cut at %d: %d transactions, %v", cut, len(list), err)
		}
	}
	if _, err := readJournal([]byte("this is some other file altogether")); err == nil {
		t.Error("a text was read as a log")
	}
}

// TestLostProposals: what a leader had written down when it lost the others is
// not in force; what nobody went on without is.
func TestLostProposals(t *testing.T) {
	t.Parallel()
	log := func(zxids ...int64) []byte {
		l := newLog()
		for _, z := range zxids {
			l.zxid = z - 1
			l.entry(1, txnCloseSession, nil)
		}
		return l.data
	}
	const two, three = int64(2) << 32, int64(3) << 32
	for name, test := range map[string]struct {
		logs map[string][]byte
		want []int64
	}{
		"a minority's, and the others went on": {map[string][]byte{
			"server0": log(two+1, two+2, three+1), "server1": log(two+1, two+2, three+1, three+2), "server2.kept": log(two+1, two+2, two+3, two+4, three+2),
		}, []int64{two + 1, two + 2, three + 1, three + 2}},
		"a majority's": {map[string][]byte{
			"server0": log(two+1, three+1), "server1": log(two+1, two+2, three+1), "server2": log(two+1, two+2),
		}, []int64{two + 1, two + 2, three + 1}},
		"a gap": {map[string][]byte{"server0": log(two+1, two+3)}, nil},
		"the end": {map[string][]byte{
			"server0": log(two+1, two+2), "server1": log(two + 1), "server2": log(two + 1),
		}, []int64{two + 1, two + 2}},
		"one server": {map[string][]byte{"server0": log(two+1, two+2, three+1)}, []int64{two + 1, two + 2, three + 1}},
	} {
		dir := t.TempDir()
		for server, data := range test.logs {
			if err := os.MkdirAll(filepath.Join(dir, server, "data"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, server, "data", "log.1"), data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		list, err := readJournals(dir)
		var got []int64
		for _, x := range list {
			got = append(got, x.zxid)
		}
		if !slices.Equal(got, test.want) || (err != nil) != (test.want == nil) {
			t.Errorf("%s: %#x, %v, want %#x", name, got, err, test.want)
		}
	}
}

func FuzzJournal(f *testing.F) {
	l := newLog()
	l.multi(1, begin("x", instant)...)
	l.entry(1, txnCloseSession, nil)
	f.Add(l.data)
	f.Fuzz(func(_ *testing.T, data []byte) {
		list, _ := readJournal(data) // it may be anything
		a := newAudit("ns")
		for i := range list {
			a.take(&list[i])
		}
	})
}
