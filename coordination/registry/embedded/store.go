package embedded

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"
)

const (
	fileName = "registry.db"
	schema   = 1
	lockWait = time.Second
	// ahead is how many transactions may go without a write of the counter.
	ahead = 1000
)

// errUnknown: the write may or may not survive a crash of the machine.
var errUnknown = errors.New("it is not known whether the write took effect")

// The file has two buckets: nodes, path → encodeNode, persistent ones only;
// meta, with the schema and the ceiling, both big-endian.
func bucketNodes() []byte { return []byte("nodes") }
func bucketMeta() []byte  { return []byte("meta") }
func keySchema() []byte   { return []byte("schema") }

// keyCeiling holds a number that no transaction number given out exceeds. A restart continues above it, so that
// no number is used twice.
func keyCeiling() []byte { return []byte("ceiling") }

// faults are failures of a store, for tests.
type faults struct {
	commit func(*bbolt.Tx) error // in place of Tx.Commit
	opened func(*os.File)        // receives the file
	// lock is in place of takeLock.
	lock func(*os.File) (free bool, err error)
}

// store is the registry's file. Only the writer uses it, and the goroutine that opens or closes it.
type store struct {
	db       *bbolt.DB
	file     *os.File // that of db
	ceiling  int64
	commit   func(*bbolt.Tx) error
	panicked bool // bbolt may hold its locks forever
}

// plan is the content of one transaction.
type plan struct {
	puts []put
	zxid int64 // the last one that it makes visible
}

type put struct {
	key, value []byte // value nil: delete
}

// plan lists what the layer changes on disk; nil if nothing.
func (s *store) plan(l *layer, zxid int64) *plan {
	var puts []put
	for i := range l.changes {
		c := &l.changes[i]
		if !c.stored {
			continue
		}
		if c.exists && c.owner == nil {
			puts = append(puts, put{[]byte(c.path), encodeNode(&c.state)})
		} else if c.at != nil && c.at.owner == nil {
			puts = append(puts, put{[]byte(c.path), nil})
		}
	}
	if len(puts) == 0 && zxid <= s.ceiling {
		return nil
	}
	return &plan{puts, zxid}
}

// apply writes a plan. After an error nothing of it is on disk, unless the error is errUnknown; then the store
// must not be used any more.
func (s *store) apply(p *plan) (err error) {
	if p == nil {
		return nil
	}
	defer func() {
		if r := recover(); r != nil {
			s.panicked = true
			err = fmt.Errorf("write %s: %w: %v", fileName, errUnknown, r)
		}
	}()
	id, err := s.transact(p.puts, p.zxid+ahead)
	if err == nil {
		s.ceiling = p.zxid + ahead
		return nil
	}
	// Which of the two is in the file now?
	tx, look := s.db.Begin(false)
	if look != nil {
		return fmt.Errorf("write %s: %w: %w, then %w", fileName, errUnknown, err, look)
	}
	written := tx.ID() >= id
	if look := tx.Rollback(); look != nil {
		return fmt.Errorf("write %s: %w: %w, then %w", fileName, errUnknown, err, look)
	}
	if !written {
		return fmt.Errorf("write %s: %w; nothing was written", fileName, err)
	}
	// The pages were synced and the new root was written, but perhaps not synced. The next transaction builds
	// on it and writes its own root: if that is synced, so is everything below.
	if _, again := s.transact(nil, p.zxid+ahead); again != nil {
		return fmt.Errorf("write %s: %w: %w, then %w", fileName, errUnknown, err, again)
	}
	s.ceiling = p.zxid + ahead
	return nil
}

// transact is one bbolt transaction; it returns its id.
func (s *store) transact(puts []put, ceiling int64) (id int, err error) {
	tx, err := s.db.Begin(true)
	if err != nil {
		return 0, err
	}
	id = tx.ID()
	nodes := tx.Bucket(bucketNodes())
	for _, p := range puts {
		if p.value == nil {
			err = nodes.Delete(p.key)
		} else {
			err = nodes.Put(p.key, p.value)
		}
		if err != nil {
			return id, errors.Join(err, tx.Rollback())
		}
	}
	if err := tx.Bucket(bucketMeta()).Put(keyCeiling(), number(ceiling)); err != nil {
		return id, errors.Join(err, tx.Rollback())
	}
	return id, s.commit(tx)
}

func number(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

// close closes a healthy store; zxid, if not 0, is the last number given out.
func (s *store) close(zxid int64) error {
	if zxid > 0 && zxid < s.ceiling {
		// Cosmetic: without it the numbers jump at the next start.
		_, _ = s.transact(nil, zxid)
	}
	return s.db.Close()
}

// abandon releases the file and its lock, whatever its state.
func (s *store) abandon() {
	if s.panicked {
		drop(s.file)
		return
	}
	_ = s.db.Close()
}

// openStore opens or makes the file in dir and reads the whole tree.
func openStore(dir string, f faults) (_ *store, tree map[string]*node, zxid int64, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("data directory %s: %w", dir, err)
		}
	}()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, 0, err
	}
	s := &store{commit: f.commit}
	if s.commit == nil {
		s.commit = (*bbolt.Tx).Commit
	}
	path := filepath.Join(dir, fileName)
	made := false
	options := *bbolt.DefaultOptions
	options.Timeout = lockWait
	options.FreelistType = bbolt.FreelistMapType
	options.OpenFile = func(name string, flag int, mode os.FileMode) (*os.File, error) {
		file, err := os.OpenFile(name, flag&^os.O_CREATE, mode)
		if errors.Is(err, fs.ErrNotExist) {
			file, err = os.OpenFile(name, flag|os.O_EXCL, mode)
			made = err == nil
		}
		if err == nil {
			if err = checkLocks(file, f.lock); err != nil {
				return nil, errors.Join(err, file.Close())
			}
		}
		s.file = file
		return file, err
	}

	// A damaged file can make bbolt panic or read beyond the end of its map.
	fault := debug.SetPanicOnFault(true)
	defer debug.SetPanicOnFault(fault)
	defer func() {
		if r := recover(); r != nil {
			drop(s.file)
			err = damaged(fmt.Errorf("%v", r))
		}
	}()

	if s.db, err = bbolt.Open(path, 0o600, &options); err != nil {
		return nil, nil, 0, explain(err, made, path)
	}
	if f.opened != nil {
		f.opened(s.file)
	}
	tree, zxid, err = s.load()
	if err != nil {
		return nil, nil, 0, errors.Join(err, s.db.Close())
	}
	if made {
		err = syncDir(dir)
	}
	return s, tree, zxid, err
}

// checkLocks fails if the file system has no locks, or locks that do not exclude another open file: two hosts
// would write the same file. A nil lock means takeLock.
func checkLocks(file *os.File, lock func(*os.File) (bool, error)) error {
	if lock == nil {
		lock = takeLock
	}
	free, err := lock(file)
	if err != nil {
		return fmt.Errorf("the file system has no locks (%w), so that a second host could write the same file: use a directory on a local disk", err)
	}
	if !free {
		return nil // another host has it, or bbolt finds out
	}
	second, err := os.OpenFile(file.Name(), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { _ = second.Close() }() // it is only locked
	free, err = lock(second)
	if free && err == nil {
		return errors.New("the locks of the file system keep nobody out, so that a second host could write the same file: use a directory on a local disk")
	}
	return err
}

// explain turns an error of bbolt.Open into one for operators.
func explain(err error, made bool, path string) error {
	switch {
	case errors.Is(err, bbolterrors.ErrTimeout):
		return fmt.Errorf("in use by another host (%s is locked, waited %v): give each host a directory of its own", fileName, lockWait)
	case errors.Is(err, bbolterrors.ErrInvalid), errors.Is(err, bbolterrors.ErrChecksum), errors.Is(err, bbolterrors.ErrVersionMismatch):
		return damaged(err)
	case made:
		// The next start would report half a file as damaged.
		return errors.Join(fmt.Errorf("make %s: %w", fileName, err), os.Remove(path))
	}
	return fmt.Errorf("open %s: %w", fileName, err)
}

func damaged(why error) error {
	return fmt.Errorf("%s is damaged or not a registry: %w; restore a copy, or move it away to begin with an empty one", fileName, why)
}

// syncDir makes the entry of a new file durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// load reads the tree, and reserves the first numbers: a registry that cannot be written fails at the start.
func (s *store) load() (map[string]*node, int64, error) {
	tree := map[string]*node{"/": {}}
	empty := false
	err := s.db.View(func(tx *bbolt.Tx) error {
		meta, nodes := tx.Bucket(bucketMeta()), tx.Bucket(bucketNodes())
		if meta == nil && nodes == nil {
			if k, _ := tx.Cursor().First(); k != nil {
				return damaged(fmt.Errorf("it holds a bucket %q", k))
			}
			empty = true
			return nil
		}
		if meta == nil || nodes == nil {
			return damaged(errors.New("it lacks a bucket"))
		}
		version, ceiling := meta.Get(keySchema()), meta.Get(keyCeiling())
		if len(version) != 8 || len(ceiling) != 8 {
			return damaged(errors.New("it lacks the schema's number or the counter"))
		}
		if v := binary.BigEndian.Uint64(version); v > schema {
			return fmt.Errorf("%s was written by a newer wasmjob (schema %d; this one knows up to %d)", fileName, v, schema)
		} else if v < 1 {
			return damaged(fmt.Errorf("schema %d", v))
		}
		s.ceiling = int64(binary.BigEndian.Uint64(ceiling))
		return nodes.ForEach(func(k, v []byte) error { return s.loadNode(tree, string(k), v) })
	})
	if err != nil {
		return nil, 0, err
	}
	zxid := s.ceiling
	if empty {
		err = s.create()
	} else {
		_, err = s.transact(nil, zxid+ahead)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("write %s: %w", fileName, err)
	}
	s.ceiling = zxid + ahead
	return tree, zxid, nil
}

// loadNode adds one node to the tree. Parents must come before their children, and siblings in ascending order.
func (s *store) loadNode(tree map[string]*node, path string, value []byte) error {
	st, err := decodeNode(value)
	if err == nil {
		err = checkPath(path)
	}
	if err == nil && st.mzxid > s.ceiling {
		err = fmt.Errorf("transaction %d is above the counter's %d", st.mzxid, s.ceiling)
	}
	if err != nil {
		return damaged(fmt.Errorf("node %q: %w", path, err))
	}
	if path == "/" {
		tree["/"].state = st
		return nil
	}
	parent, name := split(path)
	p := tree[parent]
	if p == nil {
		return damaged(fmt.Errorf("node %q: its parent is missing", path))
	}
	p.children++
	p.names = append(p.names, name)
	tree[path] = &node{state: st}
	return nil
}

// create makes the buckets of a new file.
func (s *store) create() error {
	tx, err := s.db.Begin(true)
	if err != nil {
		return err
	}
	meta, err := tx.CreateBucket(bucketMeta())
	if err == nil {
		_, err = tx.CreateBucket(bucketNodes())
	}
	if err == nil {
		err = meta.Put(keySchema(), number(schema))
	}
	if err == nil {
		err = meta.Put(keyCeiling(), number(ahead))
	}
	if err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return s.commit(tx)
}
