package chaos

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/bits"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/coordination/tree"
)

// ZooKeeper's transaction log: a header, then entries of checksum, length,
// bytes and an end mark. The bytes are a header (session, cxid, zxid, time,
// type) and what was done. A multi holds several of them.

const (
	logMagic  = 0x5a4b4c47 // ZKLG
	logHeader = 16
	entryEnd  = 0x42
	mostEntry = 8 << 20
)

// Types of transactions.
const (
	txnCreate       = 1
	txnDelete       = 2
	txnSet          = 5
	txnSetACL       = 7
	txnCheck        = 13
	txnMulti        = 14
	txnCreate2      = 15
	txnContainer    = 19
	txnDeleteCont   = 20
	txnCreateTTL    = 21
	txnError        = -1
	txnCloseSession = -11
)

// write is what one operation of a transaction did to a node.
type write struct {
	kind      int32 // txnCreate, txnDelete or txnSet
	path      string
	data      []byte
	ephemeral bool
}

// txn is one transaction.
type txn struct {
	session, zxid int64
	at            time.Time
	closes        bool
	writes        []write
}

var errTorn = errors.New("the end is torn")

// readJournal reads one file. A torn last entry, as a server leaves that is
// killed, ends it.
func readJournal(data []byte) ([]txn, error) {
	if len(data) == 0 {
		return nil, nil
	}
	if len(data) < logHeader || binary.BigEndian.Uint32(data) != logMagic {
		return nil, errors.New("it is no transaction log")
	}
	var list []txn
	for data = data[logHeader:]; len(data) >= 12; {
		n := int(binary.BigEndian.Uint32(data[8:]))
		if n == 0 { // room that was made for more
			break
		}
		if n > mostEntry || len(data) < 12+n+1 || data[12+n] != entryEnd {
			return list, errTorn
		}
		t, err := parseTxn(data[12 : 12+n])
		if err != nil {
			return list, fmt.Errorf("after %d transactions: %w", len(list), err)
		}
		list = append(list, t)
		data = data[12+n+1:]
	}
	return list, nil
}

// archive reads numbers and texts as ZooKeeper writes them.
type archive struct {
	data []byte
	err  error
}

func (a *archive) take(n int) []byte {
	if a.err == nil && (n < 0 || n > len(a.data)) {
		a.err = io.ErrUnexpectedEOF
	}
	if a.err != nil {
		return nil
	}
	b := a.data[:n]
	a.data = a.data[n:]
	return b
}

func (a *archive) int() int32 {
	if b := a.take(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

func (a *archive) long() int64 {
	if b := a.take(8); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

func (a *archive) buffer() []byte {
	n := a.int()
	if n <= 0 { // -1 is none
		return nil
	}
	return a.take(int(n))
}

func parseTxn(data []byte) (txn, error) {
	a := &archive{data: data}
	t := txn{session: a.long()}
	a.int() // cxid
	t.zxid = a.long()
	t.at = time.UnixMilli(a.long())
	kind := a.int()
	switch kind {
	case txnMulti:
		refused := false
		for range a.int() {
			sub := a.int()
			refused = refused || sub == txnError
			body := &archive{data: a.buffer()}
			t.add(sub, body)
			if a.err == nil {
				a.err = body.err
			}
			if a.err != nil {
				break
			}
		}
		if refused { // one of them failed: what stands before it had no effect either
			t.writes = nil
		}
	case txnCloseSession:
		t.closes = true
	default:
		t.add(kind, a)
	}
	return t, a.err
}

func (t *txn) add(kind int32, a *archive) {
	switch kind {
	case txnCreate, txnCreate2, txnContainer, txnCreateTTL:
		w := write{kind: txnCreate, path: string(a.buffer()), data: a.buffer()}
		for range a.int() { // access control
			a.int()
			a.buffer()
			a.buffer()
			if a.err != nil {
				return
			}
		}
		if kind == txnCreate || kind == txnCreate2 {
			if b := a.take(1); b != nil {
				w.ephemeral = b[0] != 0
			}
		}
		t.writes = append(t.writes, w)
	case txnDelete, txnDeleteCont:
		t.writes = append(t.writes, write{kind: txnDelete, path: string(a.buffer())})
	case txnSet:
		t.writes = append(t.writes, write{kind: txnSet, path: string(a.buffer()), data: a.buffer()})
	}
}

// logged is a transaction, and which servers have it in their logs.
type logged struct {
	txn
	servers uint64 // a bit each
}

// readJournals reads the logs of all servers, each in a directory below dir, and
// makes one of them: of what was in force. Together they must be without a gap.
func readJournals(dir string) ([]txn, error) {
	all := make(map[int64]logged)
	servers := make(map[string]int)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasPrefix(d.Name(), "log.") {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		list, err := readJournal(data)
		if err != nil && !errors.Is(err, errTorn) {
			return fmt.Errorf("%s: %w", path, err)
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		name, _, _ := strings.Cut(filepath.ToSlash(rel), "/")
		name = strings.TrimSuffix(name, keptSuffix)
		if _, known := servers[name]; !known {
			servers[name] = len(servers)
		}
		for _, t := range list {
			all[t.zxid] = logged{t, all[t.zxid].servers | 1<<servers[name]}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	list := make([]logged, 0, len(all))
	for _, zxid := range slices.Sorted(maps.Keys(all)) {
		list = append(list, all[zxid])
	}
	list = inForce(list, len(servers)/2+1)
	for i := 1; i < len(list); i++ {
		a, b := list[i-1].zxid, list[i].zxid
		if a>>32 == b>>32 && b != a+1 || a>>32 != b>>32 && int32(b) != 1 {
			return nil, fmt.Errorf("the servers' logs have a gap between transactions %#x and %#x", a, b)
		}
	}
	journal := make([]txn, len(list))
	for i := range list {
		journal[i] = list[i].txn
	}
	return journal, nil
}

// inForce takes out what a leader had written down when it lost the others: the
// last transactions of its epoch, which no majority has, while a server that has
// all before them went on into the next epoch without them. (Were they in force,
// the next leader would have sent them to that server one by one, since it lacked
// no more than these; a whole snapshot, which leaves no trace in a log, is sent
// to who lacks very many, or has too many. Such a server's log keeps what
// was taken out.)
func inForce(list []logged, majority int) []logged {
	var out []logged
	for begin := 0; begin < len(list); {
		end := begin + 1
		for end < len(list) && list[end].zxid>>32 == list[begin].zxid>>32 {
			end++
		}
		last := end
		for last > begin && bits.OnesCount64(list[last-1].servers) < majority {
			last--
		}
		out = append(out, list[begin:last]...)
		if last < end && (last == 0 || end == len(list) || list[last-1].servers&list[end].servers&^list[last].servers == 0) {
			out = append(out, list[last:end]...)
		}
		begin = end
	}
	return out
}

// audit is what the journal says of the jobs of a namespace.
type audit struct {
	root, sibling string
	ephemerals    map[int64]map[string]bool // by session
	alive         map[string]bool           // instance nodes of ours
	runs          map[string]map[itemID]string
	items         map[itemID]*record
	// completed are the runs whose completion took effect, by id, with the
	// transaction.
	completed map[string]int64
	findings  []string

	transactions, begins, completions, offsets, stale int
}

// record is the state of an item.
type record struct {
	owner  string
	open   bool
	fence  int64 // of the newest begin
	offset entry
}

func newAudit(namespace string) *audit {
	ns := "/" + strings.Trim(namespace, "/")
	return &audit{root: ns + "/", sibling: ns + ".wasmjob/", ephemerals: make(map[int64]map[string]bool), alive: make(map[string]bool),
		runs: make(map[string]map[itemID]string), items: make(map[itemID]*record), completed: make(map[string]int64)}
}

func (a *audit) find(t *txn, format string, args ...any) {
	a.findings = append(a.findings, fmt.Sprintf("transaction %#x at %s: ", t.zxid, clock(t.at))+fmt.Sprintf(format, args...))
}

// take takes the next transaction.
func (a *audit) take(t *txn) {
	a.transactions++
	if t.closes {
		for path := range a.ephemerals[t.session] {
			delete(a.alive, path)
		}
		delete(a.ephemerals, t.session)
		return
	}
	// The list of runs, which names the fire, is written in the same
	// transaction as the records: a begin is in the new one, an end in the old.
	lists := make(map[string]map[itemID]string)
	for _, w := range t.writes {
		if id, job, ok := a.below(w.path, "runs"); ok {
			lists[job+"/"+id] = a.list(t, job, w)
		}
	}
	for _, w := range t.writes {
		a.node(t, w)
		name, job, ok := a.below(w.path, "sharding")
		if ok {
			if n, err := strconv.Atoi(name); err == nil {
				a.record(t, itemID{job, n}, w, lists)
			}
			continue
		}
		if name, job, ok = a.below(w.path, "offset"); ok {
			if n, err := strconv.Atoi(name); err == nil {
				a.offset(t, itemID{job, n}, w)
			}
		}
	}
	maps.Copy(a.runs, lists)
}

// below is the name of a node directly below {sibling}/{job}/{folder}.
func (a *audit) below(path, folder string) (name, job string, ok bool) {
	rest, ok := strings.CutPrefix(path, a.sibling)
	if !ok {
		return "", "", false
	}
	parts := strings.Split(rest, "/")
	if len(parts) != 3 || parts[1] != folder {
		return "", "", false
	}
	return parts[2], parts[0], true
}

// node keeps track of which instances are alive.
func (a *audit) node(t *txn, w write) {
	switch {
	case w.kind == txnCreate && w.ephemeral:
		if a.ephemerals[t.session] == nil {
			a.ephemerals[t.session] = make(map[string]bool)
		}
		a.ephemerals[t.session][w.path] = true
		a.alive[w.path] = true
	case w.kind == txnDelete:
		delete(a.alive, w.path)
		for _, paths := range a.ephemerals {
			delete(paths, w.path)
		}
	}
}

// list is a list of runs: which fire each item is run for.
func (a *audit) list(t *txn, job string, w write) map[itemID]string {
	runs := make(map[itemID]string)
	if len(w.data) == 0 {
		return runs
	}
	var parsed tree.Runs
	if err := json.Unmarshal(w.data, &parsed); err != nil {
		a.find(t, "%s cannot be read: %v", w.path, err)
		return runs
	}
	for _, run := range parsed.Runs {
		for i := range run.Items.All() {
			runs[itemID{job, i}] = tree.RunID(job, run.Fire, i)
		}
	}
	return runs
}

// record takes what is written to the record of an item.
func (a *audit) record(t *txn, id itemID, w write, lists map[string]map[itemID]string) {
	r := a.items[id]
	if r == nil {
		r = &record{}
		a.items[id] = r
	}
	if w.kind == txnDelete {
		r.open = false
		return
	}
	var now tree.Record
	if len(w.data) > 0 {
		if err := json.Unmarshal(w.data, &now); err != nil {
			a.find(t, "%s cannot be read: %v", w.path, err)
			return
		}
	}
	switch {
	case now.Open():
		a.begins++
		run := lists[id.job+"/"+now.Owner][id]
		if run == "" {
			a.find(t, "item %s is begun by %s, whose list of runs does not have it", id, now.Owner)
		}
		if r.open && r.owner != now.Owner && a.isAlive(id.job, r.owner) {
			a.find(t, "item %s is begun by %s while %s runs it (fence %d), whose session lives", id, now.Owner, r.owner, r.fence)
		}
		if done, ok := a.completed[run]; ok {
			a.find(t, "run %s is begun once more, and was completed by transaction %#x", run, done)
		}
		r.owner, r.open, r.fence = now.Owner, true, t.zxid
	case r.open && now.Ended != 0:
		a.completions++
		run := a.runs[id.job+"/"+r.owner][id]
		if now.Outcome != tree.OutcomeCancelled && run != "" {
			if done, ok := a.completed[run]; ok {
				a.find(t, "run %s is completed twice, first by transaction %#x", run, done)
			}
			a.completed[run] = t.zxid
		}
		r.open = false
	}
}

func (a *audit) isAlive(job, instance string) bool {
	return a.alive[a.sibling+job+"/instances/"+instance] || a.alive[a.root+job+"/instances/"+instance]
}

// offset takes what is written to the offset of an item.
func (a *audit) offset(t *txn, id itemID, w write) {
	if w.kind == txnDelete || len(w.data) == 0 {
		return
	}
	e, err := parseEntry(w.data)
	if err != nil {
		a.find(t, "offset of %s: %v", id, err)
		return
	}
	a.offsets++
	r := a.items[id]
	if r == nil {
		a.find(t, "offset of %s, which was never begun", id)
		return
	}
	if err := e.check(id.item); err != nil {
		a.find(t, "offset of %s: %v", id, err)
	}
	if e.count < r.offset.count {
		a.find(t, "offset of %s goes back from %d to %d", id, r.offset.count, e.count)
	}
	if e.fence != r.fence {
		a.stale++
		a.find(t, "offset of %s is written by the guest of fence %d, but fence %d was begun by %s", id, e.fence, r.fence, r.owner)
	}
	r.offset = e
}
